package layer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
)

// S4-59, S4-60: the lists of the home and of the agent are two policies, and the profile of the
// agent replaces that of the home. What is shown means the same to a runner.
func TestToolLists(t *testing.T) {
	for _, c := range []struct{ home, agent, want string }{
		{"", "", `profile "theclaw" allow [exec] deny [apply_patch]`},
		{"flavor: openclaw\n", "", `profile "full" allow [] deny []`},
		{"tools: {profile: coding, deny: [image]}\n", "tools:\n  deny: ['group:runtime']\n", `profile "coding" allow ['group:fs', 'group:runtime', 'group:sessions', 'group:memory', image] deny []; home allow [] deny [image]; agent allow [] deny ['group:runtime']`},
		{"tools: {profile: minimal, allow: [exec]}\n", "tools:\n  profile: full\n", `profile "full" allow [] deny []; home allow [exec] deny []`},
		{"tools: {alsoAllow: [read]}\n", "tools: {also_allow: [web_fetch]}\n", `profile "theclaw" allow [exec, web_fetch] deny [apply_patch]; home allow ['*', read] deny []; agent allow ['*', web_fetch] deny []`},
		{"agents:\n  defaults: {tools: {allow: [exec, read]}}\n  list:\n    - id: a1\n      tools: {allow: [write], profile: full}\n", "", `profile "full" allow [] deny []; home allow [exec, read] deny []; agent allow [write] deny []`},
		{"agents:\n  list:\n    - id: a1\n      tools: {allow: [write], profile: full}\n", "tools: {allow: []}\n", `profile "full" allow [] deny []`},
		{"reply: {message_tool: true}\n", "", `profile "theclaw" allow [exec, message] deny [apply_patch]`},
	} {
		got, err := layer.Load(layer.Layers{AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte(c.home)}, Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + c.agent)}})
		if err != nil {
			t.Errorf("%s%s: %v", c.home, c.agent, err)
			continue
		}
		text := func(cfg *config.Config) string {
			var out []string
			for _, l := range cfg.ToolLayers() {
				out = append(out, fmt.Sprintf("%s allow %s deny %s", l.Name, config.FlowList(l.Allow), config.FlowList(l.Deny)))
			}
			return strings.Join(out, "; ")
		}
		if text(&got.Config) != c.want {
			t.Errorf("%s%s\n got %s\nwant %s", c.home, c.agent, text(&got.Config), c.want)
		}
		shown := map[string]string{}
		for _, v := range got.Values {
			shown[v.Key] = v.Value
		}
		if read := config.FromValues(shown); text(&read) != c.want {
			t.Errorf("%s%s: a runner reads %s, want %s", c.home, c.agent, text(&read), c.want)
		}
	}
	for _, c := range []struct{ home, agent, want string }{
		{"", "tools: {allow: [exec], also_allow: [read]}\n", "config.yaml:2:"},
		{"tools: {allow: [exec], also_allow: [read]}\n", "", "theclaw.yaml:1:"},
		{"agents: {list: [{id: a1, tools: {allow: [exec]}}]}\n", "tools: {also_allow: [read]}\n", "config.yaml:2:"},
		{"", "tools: {allow: ['group:nosuch']}\n", `there is no group "group:nosuch"`},
		{"", "tools: {deny: exec}\n", "must be a list"},
		{"", "tools: {profile: some}\n", "is not one of theclaw, minimal"},
	} {
		_, err := layer.Load(layer.Layers{AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte(c.home)}, Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + c.agent)}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: %v, want %s", c.home, c.agent, err, c.want)
		}
	}
}

// The origins that `config effective` shows, and a list that `config set` writes.
func TestToolListsAreShown(t *testing.T) {
	in := layer.Layers{
		AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte("tools:\n  deny: [cron]\n")},
		Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n")},
	}
	data, err := layer.Set(in, "tools.also_allow", "[web_fetch, group:fs]")
	if err != nil {
		t.Fatal(err)
	}
	in.Agent.Data = data
	got, err := layer.Load(in)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"tools.also_allow":           "[web_fetch, 'group:fs'] config.yaml:3",
		"tools.deny":                 "[] default",
		"agents.defaults.tools.deny": "[cron] theclaw.yaml:2",
		"tools.profile":              "theclaw default",
	} {
		if v, ok := got.Get(key); !ok || v.Value+" "+v.Origin != want {
			t.Errorf("%s: %+v, want %s", key, v, want)
		}
	}
}

// The policy for commands: what the older key means, which layer decides, and the values of the
// flavors.
func TestExecPolicy(t *testing.T) {
	load := func(home, agent string, over ...layer.Override) (*layer.Loaded, error) {
		return layer.Load(layer.Layers{AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte(home)}, Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + agent)}, Overrides: over})
	}
	for _, c := range []struct {
		home, agent string
		over        []layer.Override
		want        string
	}{
		{"", "", nil, "full off deny "},
		{"flavor: openclaw\n", "", nil, "allowlist on-miss deny "},
		{"flavor: agentclaw\n", "tools: {exec: {askFallback: allowlist}}\n", nil, "allowlist on-miss allowlist "},
		{"", "approvals: ask\n", nil, "full always deny ask"},
		{"flavor: openclaw\n", "approvals: none\n", nil, "full off deny none"},
		{"approvals: ask\n", "tools: {exec: {security: allowlist}}\n", nil, "allowlist always deny "},
		{"tools: {exec: {security: deny, ask: on-miss}}\n", "approvals: ask\n", nil, "full always deny ask"},
		{"", "approvals: ask\n", []layer.Override{{Key: "tools.exec.ask", Value: "off", Origin: "flag"}}, "full off deny "},
		{"", "tools: {exec: {ask: always}}\n", []layer.Override{{Key: "approvals", Value: "none", Origin: "flag"}}, "full off deny none"},
	} {
		got, err := load(c.home, c.agent, c.over...)
		if err != nil {
			t.Errorf("%s%s: %v", c.home, c.agent, err)
			continue
		}
		e := got.Config.Tools.Exec
		if text := fmt.Sprintf("%s %s %s %s", e.Security, e.Ask, e.AskFallback, got.Config.Approvals); text != c.want {
			t.Errorf("%s%s%v: %s, want %s", c.home, c.agent, c.over, text, c.want)
		}
	}
	for _, c := range []struct{ home, agent, want string }{
		{"", "approvals: ask\ntools: {exec: {ask: always}}\n", "approvals is the older form of tools.exec.ask; keep one of them"},
		{"approvals: none\ntools: {exec: {security: deny}}\n", "", "approvals is the older form of tools.exec.security"},
		{"", "tools: {exec: {security: some}}\n", "is not one of deny, allowlist, full"},
		{"", "tools: {exec: {safe_bins: [/bin/cat]}}\n", "is not the name of a program"},
		{"", "tools: {approval_timeout: 1s}\n", "is not between 1m and 24h"},
	} {
		if _, err := load(c.home, c.agent); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: %v, want %s", c.home, c.agent, err, c.want)
		}
	}
}
