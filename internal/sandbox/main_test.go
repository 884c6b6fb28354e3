//go:build linux

package sandbox

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/testing/need"
)

// children are what the test binary is as a child, by its first argument.
var children = map[string]func(string) int{attemptArg: runAttempt, holdArg: holdScratch}

func TestMain(m *testing.M) {
	Main()
	if len(os.Args) == 3 && children[os.Args[1]] != nil {
		os.Exit(children[os.Args[1]](os.Args[2]))
	}
	code := m.Run()
	for _, made := range []func() (string, error){self, program} {
		if p, err := made(); err == nil {
			_ = os.RemoveAll(filepath.Dir(p))
		}
	}
	os.Exit(code)
}

// outside makes a directory every user can enter: at the level reduced root's
// programs are another user, and t.TempDir is for us alone.
func outside(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sandbox-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// workdir makes a directory the level can work in.
func workdir(tb testing.TB, l Level) string {
	tb.Helper()
	dir := outside(tb)
	if l == LevelReduced && os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// only is a sandbox of this level, or a skipped test where the host has none.
func only(tb testing.TB, l Level) *Sandbox {
	tb.Helper()
	return with(tb, l, Options{})
}

func with(tb testing.TB, l Level, o Options) *Sandbox {
	tb.Helper()
	switch l {
	case LevelFull:
		need.Namespaces(tb, "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--mount-proc")
	case LevelBubblewrap:
		need.Bubblewrap(tb)
	case LevelPrivileged:
		need.Root(tb)
		need.Namespaces(tb, "--mount", "--pid", "--net", "--fork", "--mount-proc")
	}
	o.levels = []Level{l}
	o.ScratchDir = outside(tb)
	binary, err := self()
	if err != nil {
		tb.Fatal(err)
	}
	o.ReadOnly = append(o.ReadOnly, binary)
	if o.Program, err = program(); err != nil {
		tb.Fatal(err)
	}
	s, err := New(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	if s.Report().Level != l {
		if l != LevelReduced && os.Geteuid() == 0 { // the machine can do it: that was tried above
			tb.Fatalf("root has no %s: %q", l, s.Report().Problems)
		}
		need.Missing(tb, fmt.Sprintf("the sandbox %s (%q)", l, s.Report().Problems), "run the tests as root, or permit namespaces to users")
	}
	return s
}

// self is a copy of the test binary where every user can run it: attempts written
// in Go are run from it, inside.
var self = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sandbox-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	p := filepath.Join(dir, "attempt")
	return p, os.WriteFile(p, b, 0o755)
})

// program is theclaw-sandbox, built and found as agentd finds it.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sandbox-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // #nosec G302 -- a directory of programs
		return "", err
	}
	p := filepath.Join(dir, ProgramName)
	build := exec.Command("go", "build", "-o", p, "../../cmd/"+ProgramName)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	b, err := os.ReadFile(p)
	if err != nil {
		return "", err
	}
	return FindProgram(dir, fmt.Sprintf("%x", sha256.Sum256(b)))
})
