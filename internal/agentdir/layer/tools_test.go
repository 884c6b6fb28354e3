package layer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// S4-59, S4-60: the lists of the home and of the agent are two policies, and the profile of the
// agent replaces that of the home.
func TestToolLists(t *testing.T) {
	for _, c := range []struct{ home, agent, want string }{
		{"", "", `profile "theclaw" allow [exec] deny [apply_patch]`},
		{"flavor: openclaw\n", "", `profile "full" allow [] deny []`},
		{"tools: {profile: coding, deny: [image]}\n", "tools:\n  deny: ['group:runtime']\n", `profile "coding" allow ['group:fs', 'group:runtime', 'group:sessions', 'group:memory', image] deny []; home allow [] deny [image]; agent allow [] deny ['group:runtime']`},
		{"tools: {profile: minimal, allow: [exec]}\n", "tools:\n  profile: full\n", `profile "full" allow [] deny []; home allow [exec] deny []; tools.web_search.provider off allow [] deny [web_search]`},
		{"tools: {alsoAllow: [read]}\n", "tools: {also_allow: [web_fetch]}\n", `profile "theclaw" allow [exec, web_fetch] deny [apply_patch]; home allow ['*', read] deny []; agent allow ['*', web_fetch] deny []`},
		{"agents:\n  defaults: {tools: {allow: [exec, read]}}\n  list:\n    - id: a1\n      tools: {allow: [write], profile: full}\n", "", `profile "full" allow [] deny []; home allow [exec, read] deny []; agent allow [write] deny []; tools.web_search.provider off allow [] deny [web_search]`},
		{"agents:\n  list:\n    - id: a1\n      tools: {allow: [write], profile: full}\n", "tools: {allow: []}\n", `profile "full" allow [] deny []; tools.web_search.provider off allow [] deny [web_search]`},
		{"reply: {message_tool: true}\n", "", `profile "theclaw" allow [exec, message] deny [apply_patch]`},
	} {
		got, err := layer.Load(layer.Layers{AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte(c.home)}, Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + c.agent)}})
		if err != nil {
			t.Errorf("%s%s: %v", c.home, c.agent, err)
			continue
		}
		text := func(cfg *config.Config) string {
			var out []string
			for _, l := range cfg.ToolLayers(config.Conversation{}, nil) {
				out = append(out, fmt.Sprintf("%s allow %s deny %s", l.Name, config.FlowList(l.Allow), config.FlowList(l.Deny)))
			}
			return strings.Join(out, "; ")
		}
		if text(&got.Config) != c.want {
			t.Errorf("%s%s\n got %s\nwant %s", c.home, c.agent, text(&got.Config), c.want)
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

// S4-59, S4-60, S4-61, S4-76: which of eight layers decides, by hand. Settings of the home, of the agent, the model,
// the conversation and the tool.
func TestToolLayers(t *testing.T) {
	const (
		main  = "agent:a1:main"
		group = "agent:a1:telegram:group:-100"
		home  = "channels: {tg: {type: telegram, tools: {group: {deny: ['group:runtime']}, dm: {allow: [exec, read]}}}}\n"
	)
	for _, c := range []struct{ home, agent, model, kind, tool, want string }{
		{"", "", "openai/gpt-5", "", "read", `1 profile "theclaw": no entry of allow`},
		{"tools: {profile: coding}\n", "", "openai/gpt-5", "", "edit", ""},
		{"tools: {by_provider: {openai: {profile: minimal}}}\n", "", "openai/gpt-5", "", "exec", `2 profile "minimal" by provider: no entry of allow`},
		{"tools: {by_provider: {openai: {profile: minimal}}}\n", "", "anthropic/claude", "", "exec", ""},
		{"tools: {by_provider: {openai: {profile: minimal}}}\n", "tools: {by_provider: {openai: {profile: coding}}}\n", "openai/gpt-5", "", "exec", ""},
		{"tools: {by_provider: {OpenAI: {profile: minimal}}}\n", "tools: {by_provider: {openai/GPT-5: {alsoAllow: [exec]}}}\n", "openai/gpt-5", "", "exec", ""},
		{"tools: {by_provider: {openai: {deny: [exec]}, openai/gpt-5: {}}}\n", "", "openai/gpt-5", "", "exec", ""},
		{"tools: {by_provider: {openai: {deny: [exec]}, openai/gpt-5: {}}}\n", "", "openai/gpt-4", "", "exec", `4 home by provider: deny ["exec"]`},
		{"tools: {deny: [exec], by_provider: {openai: {deny: [exec]}}}\n", "", "openai/gpt-5", "", "exec", `3 home: deny ["exec"]`},
		{"", "tools: {allow: [read]}\n", "openai/gpt-5", "", "exec", "5 agent: no entry of allow"},
		{"", "tools: {by_provider: {openrouter/a/b: {deny: ['*']}}}\n", "openrouter/a/b", "", "exec", `6 agent by provider: deny ["*"]`},
		{"", "tools: {by_provider: {openrouter/a/b: {deny: ['*']}}}\n", "openrouter/a/c", "", "exec", ""},
		{home, "", "openai/gpt-5", "group", "exec", `7 conversation: deny ["group:runtime"]`},
		{home, "", "openai/gpt-5", "channel", "exec", ""},
		{home, "tools: {profile: full}\n", "openai/gpt-5", "dm", "web_fetch", "7 conversation: no entry of allow"},
		{home, "tools: {profile: full}\n", "openai/gpt-5", "", "web_fetch", ""},
		{"flavor: openclaw\n", "", "openai/gpt-5", "group", "web_fetch", "8 sandbox: no entry of allow"},
		{"flavor: openclaw\n", "", "openai/gpt-5", "", "web_fetch", ""},
		{"flavor: openclaw\n", "tools: {sandbox: {tools: {allow: []}}}\n", "openai/gpt-5", "group", "web_fetch", ""},
		{"flavor: openclaw\n", "tools: {sandbox: {tools: {allow: []}}}\n", "openai/gpt-5", "group", "cron", `8 sandbox: deny ["cron"]`},
		{"flavor: openclaw\ntools: {sandbox: {tools: {deny: [exec]}}}\n", "", "openai/gpt-5", "group", "exec", `8 sandbox: deny ["exec"]`},
		{"flavor: openclaw\ntools: {sandbox: {tools: {deny: [exec]}}}\n", "tools: {sandbox: {tools: {deny: [image]}}}\n", "openai/gpt-5", "group", "exec", ""},
		{"flavor: openclaw\nsandbox: {workspace_access: ro}\n", "", "openai/gpt-5", "group", "apply_patch", `8 sandbox, sandbox.workspace_access ro: deny ["apply_patch"]`},
		{"flavor: openclaw\nsandbox: {workspace_access: ro}\n", "", "openai/gpt-5", "group", "read", ""},
		{"", "tools: {profile: full, web_search: {provider: 'off'}}\n", "openai/gpt-5", "", "web_search", `0 tools.web_search.provider off: deny ["web_search"]`},
		{"", "tools: {profile: full}\n", "openai/gpt-5", "", "web_search", `0 tools.web_search.provider off: deny ["web_search"]`},
		{"", "tools: {also_allow: [web_search]}\n", "openai/gpt-5", "", "web_search", `0 tools.web_search.provider off: deny ["web_search"]`},
		{"", "tools: {profile: full, web_search: {provider: auto}}\n", "openai/gpt-5", "", "web_search", ""},
		{"flavor: openclaw\n", "", "openai/gpt-5", "", "web_search", ""},
		{"flavor: agentclaw\n", "", "openai/gpt-5", "", "web_search", ""},
	} {
		got, err := layer.Load(layer.Layers{AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte(c.home)}, Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + c.agent)}})
		if err != nil {
			t.Errorf("%s%s: %v", c.home, c.agent, err)
			continue
		}
		at := config.Conversation{Key: main}
		if c.kind != "" {
			at = config.Conversation{Key: group, Account: "tg", Kind: c.kind}
		}
		provider, model, _ := strings.Cut(c.model, "/")
		layers := toolpolicy.ForModel(got.Config.ToolLayers(at, layer.HomeSettings{Accounts: got.Accounts}.AccountTools()), provider, model)
		d := toolpolicy.New(layers).Decide(toolpolicy.Tool{Name: c.tool})
		text := ""
		if !d.Allowed {
			text = fmt.Sprintf("%d %s: %s", layers[d.Layer-1].Number, layers[d.Layer-1].Name, d.Rule)
		}
		if text != c.want {
			t.Errorf("%s%s, %s, %s, %s: got %q, want %q", c.home, c.agent, c.model, c.kind, c.tool, text, c.want)
		}
	}
	for _, c := range []struct{ home, want string }{
		{"tools: {by_provider: {openai: {allow: [exec], also_allow: [read]}}}\n", "allow and also_allow cannot both be set"},
		{"tools: {by_provider: {openai: {profile: some}}}\n", "is not one of theclaw, minimal"},
		{"tools: {by_provider: {'open ai': {deny: [exec]}}}\n", "is neither a provider nor PROVIDER/MODEL"},
		{"tools: {by_provider: {openai: {deny: ['group:nosuch']}}}\n", "there is no group"},
		{"tools: {by_provider: {openai: {}, OpenAI: {}}}\n", "there are two entries openai"},
		{"tools: {by_provider: {openai: {deney: [exec]}}}\n", `unknown key "deney"`},
		{"channels: {tg: {type: telegram, tools: {thread: {deny: [exec]}}}}\n", `unknown key "thread"`},
		{"channels: {tg: {type: telegram, tools: {dm: {deny: ['group:nosuch']}}}}\n", "there is no group"},
	} {
		if err := layer.CheckHome(layer.File{Name: "theclaw.yaml", Data: []byte(c.home)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.home, err, c.want)
		}
	}
}

// tools.bash is an older name of tools.exec, in every layer and when a key is set; both in one group are refused.
func TestOlderNameOfExec(t *testing.T) {
	in := layer.Layers{
		AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte("tools:\n  bash: {timeout: 5m, safeBins: [jq]}\n")},
		Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\ntools:\n  bash:\n    timeout: 2m\n")},
	}
	data, err := layer.Set(in, "tools.exec.yield", "10s")
	if err != nil {
		t.Fatal(err)
	}
	if want := "agent_id: a1\ntools:\n  bash:\n    timeout: 2m\n    yield: 10s\n"; string(data) != want {
		t.Errorf("written %q, want %q", data, want)
	}
	in.Agent.Data = data
	got, err := layer.Load(in)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"tools.exec.timeout": "2m config.yaml:4", "tools.exec.safe_bins": "[jq] theclaw.yaml:2", "tools.exec.yield": "10s config.yaml:5"} {
		if v, ok := got.Get(key); !ok || v.Value+" "+v.Origin != want {
			t.Errorf("%s: %+v, want %s", key, v, want)
		}
	}
	for text, want := range map[string]string{
		"tools: {bash: {timeout: 5m}, exec: {yield: 10s}}\n": `"bash" and "exec" are two spellings of one key; keep one of them`,
		"tools: {exec: {}, bash: {}}\n":                      `"exec" and "bash" are two spellings`,
		"tools: {bash: {nosuch: 1}}\n":                       `unknown key "tools.exec.nosuch"`,
		"approvals: ask\ntools: {bash: {security: deny}}\n":  "approvals is the older form of tools.exec.security",
		"bash: {timeout: 5m}\n":                              `unknown key "bash"`,
		"sandbox: {bash: {timeout: 5m}}\n":                   `unknown key "sandbox.bash"`,
	} {
		in.Agent.Data = []byte("agent_id: a1\n" + text)
		if _, err := layer.Load(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// The addresses that are not public and that tools may reach are for theclaw.yaml: a program of the agent may be able to
// change its config.yaml.
func TestKeysOfHome(t *testing.T) {
	for _, key := range []string{"tools.web_fetch.allow_private", "tools.http.allow_private"} {
		_, tool, _ := strings.Cut(strings.TrimSuffix(key, ".allow_private"), ".")
		text := "tools: {" + tool + ": {allowPrivate: [10.0.0.0/8]}}\n"
		in := layer.Layers{AgentID: "a1", Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + text)}}
		if _, err := layer.Load(in); err == nil || !strings.Contains(err.Error(), `config.yaml:2:`) || !strings.Contains(err.Error(), `"`+key+`" belongs in theclaw.yaml`) {
			t.Errorf("%s in config.yaml: %v", key, err)
		}
		in.Agent.Data = []byte("agent_id: a1\n")
		if _, err := layer.Set(in, key, "[10.0.0.0/8]"); err == nil || !strings.Contains(err.Error(), "belongs in theclaw.yaml") {
			t.Errorf("%s is set: %v", key, err)
		}
		for _, home := range []string{text, "agents: {defaults: {" + strings.TrimSpace(text) + "}}\n", "agents: {list: [{id: a1, " + strings.TrimSpace(text) + "}]}\n"} {
			in.Home = layer.File{Name: "theclaw.yaml", Data: []byte(home)}
			got, err := layer.Load(in)
			if err != nil {
				t.Errorf("%s: %v", home, err)
				continue
			}
			if v, _ := got.Get(key); v.Value != "['10.0.0.0/8']" {
				t.Errorf("%s: %+v", home, v)
			}
		}
	}
}
