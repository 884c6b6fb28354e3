//go:build proof

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/cmd/internal/threadtool"
)

// Under the name thread it is the thread tool, however it got the name.
func TestCalledThread(t *testing.T) {
	agentctl := filepath.Join(built(t), "agentctl")
	link := func(to string) string {
		from := filepath.Join(t.TempDir(), "thread")
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
		return from
	}
	linked := link(agentctl)
	copied := filepath.Join(t.TempDir(), "thread")
	if out, err := exec.Command("cp", agentctl, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct{ call, path string }{
		{linked, ""}, {"thread", filepath.Dir(linked)}, {link(linked), ""}, {copied, ""},
	} {
		dir := filepath.Join(t.TempDir(), "t")
		for _, line := range []struct {
			args []string
			want string
		}{
			{[]string{"--version"}, threadtool.Version + "\n"},
			{[]string{"init", dir}, ""},
			{[]string{"push", "--thread", dir, "--source", "self", "--type", "message", "--content", "x"}, ""},
		} {
			cmd := exec.Command("/usr/bin/env", append([]string{"--", c.call}, line.args...)...)
			cmd.Env = []string{"PATH=" + c.path, "HOME=" + t.TempDir()}
			if out, err := cmd.Output(); err != nil || line.want != "" && string(out) != line.want {
				t.Errorf("%s %q: %v, %q", c.call, line.args, err, out)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "events.db")); err != nil {
			t.Errorf("%s: %v", c.call, err)
		}
	}
	if out, err := exec.Command(agentctl, "thread", "info").CombinedOutput(); err == nil {
		t.Errorf("agentctl thread: %s", out)
	}
}
