// Package standin tests the stand-ins of external programs that proofs put on a PATH in
// place of the real ones: thread, notifier and xgw, one Go program each in the directories
// next to this file.
//
// Each directory says what is true to the real program and what is not modeled; the tests
// here compare them with the recorded command lines of version 1.0.9: output, exit code,
// class of error, files and schema. They import nothing of the services, so that they
// cannot share a mistake with them.
package standin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const module = "github.com/theclaw/agents/"

var built struct {
	mu  sync.Mutex
	dir string
	err map[string]error // by package
}

// Dir is a directory with the three programs. More are packages of this module
// that are built with them, such as cmd/agent. They are built once for a test
// binary; Clean removes them.
func Dir(t testing.TB, more ...string) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "standin")
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.err = dir, map[string]error{}
	}
	for _, p := range append([]string{"proofs/standin/thread", "proofs/standin/notifier", "proofs/standin/xgw"}, more...) {
		err, done := built.err[p]
		if !done {
			err = build(p)
			built.err[p] = err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return built.dir
}

func build(p string) error {
	c := exec.Command("go", "build", "-o", filepath.Join(built.dir, filepath.Base(p)), module+p)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p, err, out)
	}
	return nil
}

// Clean removes what Dir built; TestMain calls it.
func Clean() {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}
