package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// S0-25: the answer of config set names the value that it replaces, so that an addition to a list is not a loss of the rest.
func TestConfigSetSaysWhatWasThere(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []\ntools: {profile: coding, also_allow: [web_fetch]}")
	do := person(w)
	for _, c := range []struct{ key, value, want string }{
		{"tools.also_allow", "[send_file]", "Agent 'a1': tools.also_allow is set; it was [web_fetch]\n"},
		{"tools.also_allow", "[send_file]", "Agent 'a1': tools.also_allow is set\n"},
		{"run.concurrency", "3", "Agent 'a1': run.concurrency is set\n"}, // over a default
		{"run.concurrency", "4", "Agent 'a1': run.concurrency is set; it was 3\n"},
	} {
		if o := do("config", "set", "a1", c.key, c.value); o.out != c.want || o.code != 0 {
			t.Errorf("%s %s: %q %s", c.key, c.value, o.out, o.err)
		}
	}
}

// S0-25: config unset gives an agent the value of the home or the default again, and keeps all other lines.
func TestConfigUnset(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: [] # mine\nrun: {timeout: 9m, concurrency: 2}")
	do := person(w)
	home := filepath.Join(w.Home, "theclaw.yaml")
	if err := os.WriteFile(home, []byte("# ours\nretry:\n  max_attempts: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() string { return done(t, do, "file", "get", "a1", "config.yaml").out }
	before := read()
	done(t, do, "config", "set", "a1", "retry.max_attempts", "5")
	for _, c := range []struct{ line, want string }{
		{"a1 retry.max_attempts", "Agent 'a1': retry.max_attempts is removed; in force: 7 (theclaw.yaml:3)\n"},
		{"a1 retry.max_attempts", "Agent 'a1': retry.max_attempts was not set; in force: 7 (theclaw.yaml:3)\n"},
		{"retry.max_attempts", "Home: retry.max_attempts is removed\n"},
		{"retry.max_attempts", "Home: retry.max_attempts was not set\n"},
		{"a1 retry.max_attempts", "Agent 'a1': retry.max_attempts was not set; in force: 3 (default)\n"},
	} {
		if o := do(append([]string{"config", "unset"}, strings.Fields(c.line)...)...); o.out != c.want || o.code != 0 {
			t.Errorf("%s: %q %s", c.line, o.out, o.err)
		}
	}
	if got := read(); got != before {
		t.Errorf("config.yaml was\n%s\nis\n%s", before, got)
	}
	if got, err := os.ReadFile(home); err != nil || string(got) != "# ours\n" {
		t.Errorf("%v %q", err, got)
	}
	fails(t, do, 2, "there is no setting", "config", "unset", "a1", "retry.max_atempts")
	fails(t, do, 2, "there is no setting", "config", "unset", "retry.max_atempts")
	fails(t, do, 1, "edit the file by hand", "config", "unset", "a1", "run.timeout")
	fails(t, do, 2, "", "config", "unset", "a1", "retry.max_attempts", "x")
	if got := read(); got != before {
		t.Errorf("changed by a refusal:\n%s", got)
	}
}

// An agent where a verb of the log is expected is answered with the command that shows its log.
func TestLogOfAnAgent(t *testing.T) {
	do := person(world.Start(t, world.Options{}))
	fails(t, do, 2, "did you mean 'agentctl log show bob'?", "log", "bob")
	fails(t, do, 2, "did you mean 'show'?", "log", "shw")
}
