package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// S2-15: a person reads the policy for commands from a file of another program, sees it, changes it
// and prints it in the form of that file.
func TestApprovalPolicy(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	w.Create(t, "main", "outbound: []")
	do := person(w)
	says := func(want string, args ...string) {
		t.Helper()
		if o := done(t, do, args...); !strings.Contains(o.out+o.err, want) {
			t.Errorf("%v: %s%s, want %q", args, o.out, o.err, want)
		}
	}
	says("no policy: the settings", "approvals", "policy", "show")
	file := filepath.Join(t.TempDir(), "exec-approvals.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"version":2}`)
	fails(t, do, 2, "the policy has version 2", "approvals", "policy", "import", file)
	fails(t, do, 2, "there is no file", "approvals", "policy", "import", file+"x")
	write(`{"version":1,"socket":{"token":"secret"},"defaults":{"security":"full","ask":"off"},"agents":{"default":{"ask":"always","allowlist":[{"id":"x","pattern":"/usr/bin/git","lastUsedAt":1764200000123,"lastUsedCommand":"git status"}]}}}`)
	says("the policy has 1 agents", "approvals", "policy", "import", file)
	fails(t, do, 1, "there is a policy already", "approvals", "policy", "import", file)
	says("main: security full, ask always, ask_fallback deny at most", "approvals", "policy", "show", "main")
	says("git status", "approvals", "policy", "show", "main")
	says("a1: security allowlist, ask off, ask_fallback deny at most", "approvals", "policy", "set", "a1", "--security", "allowlist", "--allow", "/usr/bin/git push", "--allow", "/opt/**/rg")
	says("(any)", "approvals", "policy", "show", "a1")
	fails(t, do, 1, "has no entry", "approvals", "policy", "set", "a1", "--remove", "9")
	says("a1: ", "approvals", "policy", "set", "a1", "--remove", "1")
	fails(t, do, 2, "nothing to change", "approvals", "policy", "set", "a1")
	fails(t, do, 2, "nothing to change", "approvals", "policy", "set", "--allow", "/x")
	fails(t, do, 2, "does not begin with the path", "approvals", "policy", "set", "a1", "--allow", "git push")
	fails(t, do, 2, "--ask", "approvals", "policy", "set", "a1", "--ask", "never")
	says("agents without rules: security deny", "approvals", "policy", "set", "--security", "deny")
	printed := done(t, do, "approvals", "policy", "show", "--json").out
	if strings.Contains(printed, "secret") || strings.Contains(printed, "push") || !strings.Contains(printed, `"/opt/**/rg"`) {
		t.Errorf("printed: %s", printed)
	}
	write(printed)
	says("the policy has 2 agents", "approvals", "policy", "import", file, "--replace")
	if again := done(t, do, "approvals", "policy", "show", "--json").out; again != printed {
		t.Errorf("read back: %s, want %s", again, printed)
	}
}
