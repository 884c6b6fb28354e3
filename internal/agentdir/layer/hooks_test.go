package layer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/hook"
)

// The hooks of theclaw.yaml and those of config.yaml add up, in their order.
func TestHooksAddUp(t *testing.T) {
	in := agent("agent_id: a1\nhooks:\n- {name: own, events: [command], command: [x.sh, -v], on_failure: closed}\n")
	in.Home = File{"theclaw.yaml", []byte(`hooks:
- name: guard
  events: [message_sending, message_received]
  match: {channels: ["tg*"]}
  command: [/usr/bin/python3, /hooks/guard.py]
  priority: -3
  timeout: 250ms
  env: {KEY: "env:GUARD_KEY"}
`)}
	got, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	want := []hook.Hook{
		{
			Name: "guard", Events: []string{hook.MessageSending, hook.MessageReceived}, Match: hook.Match{Channels: []string{"tg*"}},
			Command: []string{"/usr/bin/python3", "/hooks/guard.py"}, Priority: -3, Timeout: 250 * time.Millisecond, Env: map[string]string{"KEY": "env:GUARD_KEY"}, OfHome: true,
		},
		{Name: "own", Events: []string{hook.Command}, Command: []string{"x.sh", "-v"}, Timeout: 5 * time.Second, OnFailure: "closed", Env: map[string]string{}},
	}
	if !reflect.DeepEqual(got.Hooks, want) {
		t.Errorf("got  %+v\nwant %+v", got.Hooks, want)
	}
}

// What a hook cannot be is refused where it stands, in both files.
func TestHooksRefused(t *testing.T) {
	const sending = "events: [message_sending]"
	for in, want := range map[string]string{
		"{name: x, events: [before_tool_call], command: [a]}":                                `1:27: hooks[0]: events: there is no event "before_tool_call" that is called; there are message_received, message_sending,`,
		"{name: x, command: [a]}":                                                            "events: name one or more of message_received",
		"{name: X, " + sending + ", command: [a]}":                                           "name: a hook has a name of lower-case letters",
		"{name: x, " + sending + "}":                                                         "command: must be a list of 1 to 64 words",
		"{name: x, " + sending + ", command: [../a]}":                                        `command: "../a" must be a file in the directory hooks`,
		"{name: x, " + sending + ", socket: /x}":                                             "socket: a hook is a program for now; use command",
		"{name: x, " + sending + ", builtin: redact}":                                        "builtin: a hook is a program for now; use command",
		"{name: x, " + sending + ", command: [a], timeout: 61s}":                             "timeout: 1m1s is not between 100ms and 1m0s",
		"{name: x, " + sending + ", command: [a], priority: 1001}":                           "priority: 1001 is not between -1000 and 1000",
		"{name: x, " + sending + ", command: [a], on_failure: ask}":                          `on_failure: "ask" is not open or closed`,
		"{name: x, " + sending + ", command: [a], env: {K: plain}}":                          "env: the value of K must be env:NAME or file:PATH",
		"{name: x, " + sending + ", command: [a], match: {tools: [exec]}}":                   `unknown key "tools" in hooks[0].match; there are agents, channels, sessions`,
		"{name: x, events: [message_received], command: [a], match: {agents: [b]}}":          "message_received is before an agent is chosen",
		"{name: x, events: [gateway_start], command: [a], match: {channels: [b]}}":           "gateway_start is of no account",
		"{name: x, " + sending + ", command: [a]}, {name: x, " + sending + ", command: [a]}": "hooks[1]: there are two hooks with the name x",
	} {
		in := "hooks: [" + in + "]\n"
		l := agent("agent_id: a1\n")
		l.Home = File{"theclaw.yaml", []byte(in)}
		if _, err := Load(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("theclaw.yaml %s: %v\nwant %s", in, err, want)
		}
		if strings.Contains(want, "agent is chosen") {
			want = "is before an agent is chosen; set this hook in theclaw.yaml"
		} else if strings.Contains(want, "of no account") {
			want = "set this hook in theclaw.yaml"
		}
		_, err := Load(agent("agent_id: a1\n" + in))
		if want = strings.TrimPrefix(want, "1:27: "); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("config.yaml %s: %v\nwant %s", in, err, want)
		}
	}
	for _, in := range []string{"agents: {defaults: {hooks: []}}\n", "agents: {list: [{id: a1, hooks: []}]}\n"} {
		if err := CheckHome(File{"theclaw.yaml", []byte(in)}); err == nil || !strings.Contains(err.Error(), "hooks belongs at the top of theclaw.yaml") {
			t.Errorf("%s: %v", in, err)
		}
	}
	var many strings.Builder
	for i := range hook.Max {
		fmt.Fprintf(&many, "- {name: h%d, events: [command], command: [a]}\n", i)
	}
	l := agent("agent_id: a1\nhooks: [{name: own, events: [command], command: [a]}]\n")
	l.Home = File{"theclaw.yaml", []byte("hooks:\n" + many.String())}
	if _, err := Load(l); err == nil || !strings.Contains(err.Error(), "there are 65 hooks, those of the home included, and 64 are the most") {
		t.Errorf("%v", err)
	}
}
