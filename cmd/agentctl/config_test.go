package main

import (
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
