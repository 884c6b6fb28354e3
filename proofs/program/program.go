// Package program runs agentd as a separate program, for proofs in which a process must
// die. It is the binary of `make build`: it contains no failpoint and nothing of a test.
//
// It is a package of its own because several proofs start the same program.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// built is agentd, once for a test binary; Main removes it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// Agentd is agentd as `make build` makes it: no failpoint, nothing of a test; its
// agentctl and thread stand next to it. AGENTD names one that is built already.
func Agentd(t testing.TB) world.Program {
	t.Helper()
	if path := os.Getenv("AGENTD"); path != "" {
		return program(t, path)
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "proof"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", built.dir, "github.com/theclaw/agents/cmd/agentd", "github.com/theclaw/agents/cmd/agentctl", "github.com/theclaw/agents/cmd/thread")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build the programs: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return program(t, filepath.Join(built.dir, "agentd"))
}

func program(t testing.TB, path string) world.Program {
	return world.Program{Path: path, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
}

// Main runs the tests of a proof and removes what Agentd built.
func Main(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}
