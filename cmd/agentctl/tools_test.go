package main

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// toolRow is a tool as agentctl prints it for programs.
type toolRow struct {
	Name, Class, Sends, Denied string
	Offered                    bool
}

// S0-103, S4-59, S4-60: a person sees which tools an agent has, and which layer of the settings
// denies another one. A new agent has the one tool that runs commands.
func TestTools(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	do := person(w)
	if rows := answerOf[[]toolRow](t, do, "tools", "list", "a1"); len(rows) != 1 || rows[0].Name != "bash_exec" || rows[0].Class != "effect" || rows[0].Sends != "" {
		t.Errorf("%+v", rows)
	}
	for _, c := range []struct{ set, line, want string }{
		{"", "tools explain a1 bash_exec", "bash_exec: allowed by all layers: 1 profile \"theclaw\"\n"},
		{"", "tools explain a1 exec", "bash_exec: allowed by all layers: 1 profile \"theclaw\"\n"},
		{"", "tools explain a1 message", "message_send: denied by layer 1, profile \"theclaw\": no entry of allow\n"},
		{"config set a1 tools.profile messaging", "tools explain a1 bash_exec", "bash_exec: denied by layer 1, profile \"messaging\": no entry of allow\n"},
		{"", "tools explain a1 message", "message_send: allowed by all layers: 1 profile \"messaging\"\n"},
		{"config set a1 tools.deny [group:messaging]", "tools explain a1 message", "message_send: denied by layer 2, agent: deny \"group:messaging\"\n"},
	} {
		if c.set != "" {
			done(t, do, strings.Fields(c.set)...)
		}
		if o := do(strings.Fields(c.line)...); o.out != c.want || o.code != 0 {
			t.Errorf("agentctl %s\n%s%swant\n%s", c.line, o.out, o.err, c.want)
		}
	}
	if rows := answerOf[[]toolRow](t, do, "tools", "list", "a1"); len(rows) != 0 {
		t.Errorf("%+v", rows)
	}
	for _, r := range answerOf[[]toolRow](t, do, "tools", "list", "a1", "--all") {
		if r.Offered || !strings.HasPrefix(r.Denied, "denied by layer ") {
			t.Errorf("%+v", r)
		}
	}
	fails(t, do, 1, "there is no tool \"bash_exek\"", "tools", "explain", "a1", "bash_exek")
	fails(t, do, 2, "there is no group", "config", "set", "a1", "tools.deny", "[group:none]")
	done(t, do, "config", "set", "a1", "tools.allow", "[exec]")
	fails(t, do, 2, "keep one of them", "config", "set", "a1", "tools.also_allow", "[read]")
}
