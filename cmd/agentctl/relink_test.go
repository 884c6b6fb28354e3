//go:build proof

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Under the name thread it does nothing: it reports which file must become what.
func TestCalledThread(t *testing.T) {
	programs, links, alone := built(t), t.TempDir(), t.TempDir()
	for _, dir := range []string{links, alone} {
		if out, err := exec.Command("cp", filepath.Join(programs, "agentctl"), dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	link := func(to, from string) string {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
		return from
	}
	elsewhere := link(filepath.Join(programs, "agentctl"), filepath.Join(t.TempDir(), "thread"))
	again := link(elsewhere, filepath.Join(t.TempDir(), "thread"))
	missing := link(filepath.Join(alone, "agentctl"), filepath.Join(t.TempDir(), "thread"))
	beside := link("agentctl", filepath.Join(links, "thread"))
	copied := filepath.Join(t.TempDir(), "thread")
	if out, err := exec.Command("cp", filepath.Join(programs, "agentctl"), copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const is, replace = " is agentctl, and agentctl is not the thread tool any more - ", "replace it by the program thread: 'make install WITH_THREAD=1'"
	relink := func(target, link string) string {
		return "relink it to the program thread: ln -sf '" + target + "' '" + link + "'"
	}
	for _, c := range []struct{ call, path, want string }{
		{elsewhere, "", elsewhere + is + relink(filepath.Join(programs, "thread"), elsewhere)},
		{"thread", filepath.Dir(elsewhere), elsewhere + is + relink(filepath.Join(programs, "thread"), elsewhere)},
		{again, "", again + is + relink(filepath.Join(programs, "thread"), again)},
		{missing, "", missing + is + relink(filepath.Join(alone, "thread"), missing) + ", after 'make install WITH_THREAD=1'"},
		{beside, "", beside + is + replace},
		{copied, "", copied + is + replace},
	} {
		cmd := exec.Command("/usr/bin/env", "--", c.call, "push", "--thread", t.TempDir(), "--json")
		cmd.Env = []string{"PATH=" + c.path, "HOME=" + t.TempDir()}
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || len(out) > 0 || errs.String() != "Error: "+c.want+"\n" {
			t.Errorf("%s: %v, stdout %q, stderr %q", c.call, err, out, errs.String())
		}
	}
	// What the report says helps.
	line := relink(filepath.Join(programs, "thread"), elsewhere)
	if out, err := exec.Command("/bin/sh", "-c", line[strings.Index(line, "ln "):]+" && "+elsewhere+" --version").CombinedOutput(); err != nil || string(out) != "1.0.9\n" {
		t.Errorf("relinked: %v, %s", err, out)
	}
}
