package service

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/need"
)

// systemd-analyze answers 0 for keys it does not know, so what it prints decides.
func TestUnit(t *testing.T) {
	analyze := need.Program(t, "systemd-analyze", "systemd")
	verify := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(analyze, "verify", "--user", "--recursive-errors=no", path)
		c.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+filepath.Dir(path)+":", "SYSTEMD_COLORS=0", "XDG_RUNTIME_DIR="+t.TempDir())
		out, err := c.CombinedOutput()
		if err != nil && len(out) == 0 {
			return err.Error()
		}
		return string(out)
	}
	program := filepath.Join(t.TempDir(), `a b$c%d`) // what a path may hold
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/bin/true", program} {
		if out := verify(Unit, unit(path, homeLine(`/home/u/my claw%n$x`))); out != "" {
			t.Errorf("%s: %s", path, out)
		}
	}
	// And this is what it looks like when a key is wrong.
	if out := verify(Unit, strings.Replace(unit("/bin/true", homeLine("/h")), "KillMode", "KillingMode", 1)); !strings.Contains(out, "KillingMode") {
		t.Errorf("a wrong key is not reported: %q", out)
	}
}
