package runner_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// sandboxProgram is the path of theclaw-sandbox, for [sandbox.Options].Program. It is built once, in a
// directory that every user can read, which removeSandboxProgram removes. The test binary can start
// itself instead, as [sandbox.Main] says, and each such start initializes all packages of the test:
// it takes some fifteen times as long as one of the small program.
func sandboxProgram(tb testing.TB) string {
	tb.Helper()
	builtSandbox.Do(func() {
		if builtSandbox.dir, builtSandbox.err = os.MkdirTemp("", "sandbox-test-"); builtSandbox.err != nil {
			return
		}
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", builtSandbox.dir+string(filepath.Separator), "github.com/theclaw/agents/cmd/theclaw-sandbox")
		out, err := build.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("build theclaw-sandbox: %w\n%s", err, out)
		}
		builtSandbox.err = errors.Join(err, os.Chmod(builtSandbox.dir, 0o755)) // #nosec G302 -- a directory of programs
	})
	if builtSandbox.err != nil {
		tb.Fatal(builtSandbox.err)
	}
	return filepath.Join(builtSandbox.dir, "theclaw-sandbox")
}

var builtSandbox struct {
	sync.Once
	dir string
	err error
}

// removeSandboxProgram removes what sandboxProgram built; TestMain calls it after the last test.
func removeSandboxProgram() {
	if builtSandbox.dir != "" {
		_ = os.RemoveAll(builtSandbox.dir)
	}
}
