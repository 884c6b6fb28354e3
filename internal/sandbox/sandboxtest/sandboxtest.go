// Package sandboxtest builds theclaw-sandbox for tests that run programs in a sandbox. A test
// binary can start itself instead, as [sandbox.Main] says, and each such start initializes
// all packages of the test: it takes some fifteen times as long as one of the small program.
package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Program is the path of theclaw-sandbox, for [sandbox.Options].Program. It is built once for a
// test binary, in a directory that every user can read, which Clean removes.
func Program(tb testing.TB) string {
	tb.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "sandbox-test-"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", built.dir+string(filepath.Separator), "github.com/theclaw/agents/cmd/theclaw-sandbox")
		out, err := build.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("build theclaw-sandbox: %w\n%s", err, out)
		}
		built.err = errors.Join(err, os.Chmod(built.dir, 0o755)) // #nosec G302 -- a directory of programs
	})
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return filepath.Join(built.dir, "theclaw-sandbox")
}

var built struct {
	sync.Once
	dir string
	err error
}

// Clean removes what Program built; TestMain calls it after the last test.
func Clean() {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}
