package inboxpath

import (
	"os"
	"path/filepath"
	"testing"
)

// S0-42; the rest of the cases runs through the settings in package agentdir.
func TestResolve(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	if err := os.Symlink(out, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	in := Place{AgentID: "a1", Dir: dir, Home: filepath.Dir(dir), Allowed: []string{"relative", "~/x"}}
	for given, want := range map[string]string{
		"": "", "/x/agents/a1/inbox": "", "agents/a1/inbox": "", "own": filepath.Join(dir, "own"), "a/../own": filepath.Join(dir, "own"),
	} {
		if got, problem, err := Resolve(given, in); got != want || problem != "" || err != nil {
			t.Errorf("%s: %s, %s, %v", given, got, problem, err)
		}
	}
	for _, given := range []string{"link", "link/x", ".", "..", "../other", "~/x/y", "relative/../../..", "/etc", "/x/agents/b2/inbox"} {
		if got, problem, err := Resolve(given, in); got != "" || problem == "" || err != nil {
			t.Errorf("%s: %s, %q, %v", given, got, problem, err)
		}
	}
}
