package layer

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/sessionkey"
)

const homeText = `# the home
model: {primary: openai/gpt-5, fallbacks: [lab/small]}
session:
  reset: {mode: both, idle: 2h}
agents:
  defaults:
    workspace: /srv/main
    memory_search:
      enabled: true
      query: {maxResults: 6, hybrid: {enabled: true, weights: [1, 2]}}
  list:
    - id: main
      default: true
      name: Main
      identity: {name: Max, theme: calm, emoji: "*"}
      group_chat: {mentionPatterns: ['\bmax\b'], history_limit: 20}
    - id: work
      workspace: ~/work
      agentDir: /srv/agents/work
      model: anthropic/claude-opus
      memorySearch: {query: {hybrid: {weights: [3]}}}
      session: {dmScope: per-peer}
bindings:
  - {agentId: work, match: {channel: discord, accountId: '*', guild_id: '81'}}
  - {agent_id: main, match: {channel: telegram, peer: {kind: dm, id: '7'}}}
owners: ["telegram:1207"]
channels:
  tg: {type: telegram, dm: allowlist, allow_from: ['1', '2'], groups: {allow: ['*'], mode: always}}
  dc: {type: discord, token: 'env:DC', default: true, enabled: false}
secrets:
  SHOP: {ref: 'env:SHOP_TOKEN', hosts: [api.shop.example, '*.example.net'], agents: [work]}
  MAIL: {ref: 'file:/run/secrets/mail', hosts: [mail.example.org]}
`

func home(text string) File { return File{"theclaw.yaml", []byte(text)} }

// S4-01, S4-02, S4-05: the entries of the list and the other sections of a home.
func TestReadHome(t *testing.T) {
	got, err := ReadHome(home(homeText))
	if err != nil {
		t.Fatal(err)
	}
	want := HomeSettings{
		Agents: []AgentEntry{
			{ID: "main", Name: "Main", Default: true, Identity: Identity{"Max", "calm", "*"}, GroupChat: GroupChat{[]string{`\bmax\b`}, 20}},
			{ID: "work", Workspace: "~/work", AgentDir: "/srv/agents/work", GroupChat: GroupChat{HistoryLimit: 50}},
		},
		Bindings: []binding.Binding{
			{Agent: "work", Match: binding.Match{Channel: "discord", Account: "*", Guild: "81"}},
			{Agent: "main", Match: binding.Match{Channel: "telegram", Peer: binding.Peer{Kind: "dm", ID: "7"}}},
		},
		Accounts: []Account{
			{Name: "tg", Definition: channel.Definition{Type: "telegram"}, Enabled: true, DM: "allowlist", AllowFrom: []string{"1", "2"}, Groups: AccountGroups{Allow: []string{"*"}, Mode: "always"}, Rate: 60, MediaMaxMiB: 20, CatchUp: 24 * time.Hour},
			{Name: "dc", Definition: channel.Definition{Type: "discord", Token: "env:DC"}, Default: true, DM: "pairing", Groups: AccountGroups{Mode: "mention"}, Rate: 60, MediaMaxMiB: 20, CatchUp: 24 * time.Hour},
		},
		Secrets: []Secret{
			{"SHOP", "env:SHOP_TOKEN", []string{"api.shop.example", "*.example.net"}, []string{"work"}},
			{"MAIL", "file:/run/secrets/mail", []string{"mail.example.org"}, nil},
		},
		Owners: []string{"telegram:1207"}, Workspace: "/srv/main", Version: got.Version,
	}
	if d := cmp.Diff(want, got); d != "" || len(got.Version) != 64 {
		t.Error(d, got.Version)
	}
}

// An agent has the secrets that name it, and those that name none.
func TestSecretsOfAnAgent(t *testing.T) {
	for id, want := range map[string]int{"work": 2, "main": 1} {
		l := load(t, Layers{AgentID: id, Home: home(homeText), Agent: File{"config.yaml", []byte("agent_id: " + id + "\n")}})
		if len(l.Secrets) != want {
			t.Errorf("%s: %+v", id, l.Secrets)
		}
	}
}

// effective returns the values of an agent whose config.yaml has only its id and some lines.
func effective(t *testing.T, id, text, lines string) map[string]Value {
	t.Helper()
	l := load(t, Layers{AgentID: id, Home: home(text), Agent: File{"config.yaml", []byte("agent_id: " + id + "\n" + lines)}})
	out := map[string]Value{}
	for _, v := range l.Values {
		out[v.Key] = v
	}
	return out
}

// S4-03, S4-04, S4-11: layers are merged key by key, lists replace, each value has its origin.
func TestLayersOfTheHome(t *testing.T) {
	for id, want := range map[string]map[string]string{
		"main": {
			"pai.provider": "openai theclaw.yaml:2", "pai.model": "gpt-5 theclaw.yaml:2", "model.fallbacks": "[lab/small] theclaw.yaml:2",
			"memory_search.query.hybrid.weights": "[1, 2] theclaw.yaml:10", "memory_search.query.max_results": "6 theclaw.yaml:10",
			"name": "Main theclaw.yaml:14", "identity.name": "Max theclaw.yaml:15", "identity.theme": "calm theclaw.yaml:15",
			"session.dm_scope": " default", "session.reset.mode": "both theclaw.yaml:4", "session.reset.idle": "2h theclaw.yaml:4", "session.reset.at": "04:00 default",
		},
		"work": {
			"pai.provider": "anthropic theclaw.yaml:20", "pai.model": "claude-opus theclaw.yaml:20", "model.fallbacks": "[lab/small] theclaw.yaml:2",
			"memory_search.query.hybrid.weights": "[3] theclaw.yaml:21", "memory_search.query.hybrid.enabled": "true theclaw.yaml:10", "memory_search.enabled": "true theclaw.yaml:9",
			"session.dm_scope": "per-peer theclaw.yaml:22",
		},
		"other": {"pai.model": "gpt-5 theclaw.yaml:2", "session.dm_scope": " default"},
	} {
		got := effective(t, id, homeText, "")
		for key, text := range want {
			if v := got[key]; v.Value+" "+v.Origin != text {
				t.Errorf("%s: %s is %q, want %q", id, key, v.Value+" "+v.Origin, text)
			}
		}
	}
	v := effective(t, "work", homeText, "model: {fallbacks: []}\npai: {model: local}\n")
	if v["pai.model"].Value != "local" || v["pai.provider"].Value != "anthropic" || v["model.fallbacks"].Value != "[]" {
		t.Errorf("config.yaml does not win: %v %v %v", v["pai.model"], v["pai.provider"], v["model.fallbacks"])
	}
}

// S4-35, X-02: of dm_scope and routing.default the one in the later layer decides.
func TestLaterScopeWins(t *testing.T) {
	for _, c := range []struct {
		home, agent string
		override    Override
		want        sessionkey.Scope
		origin      string
	}{
		{"", "", Override{}, sessionkey.AccountChannelPeer, "default"},
		{"flavor: openclaw\n", "", Override{}, sessionkey.Main, "flavor openclaw"},
		{"flavor: agentclaw\n", "", Override{}, sessionkey.AccountChannelPeer, "default"},
		{"flavour: openclaw\nrouting: {default: per-peer}\n", "", Override{}, sessionkey.AccountChannelPeer, "theclaw.yaml:2"},
		{"session: {dm_scope: main}\n", "routing: {default: per-channel}\n", Override{}, sessionkey.Channel, "config.yaml:2"},
		{"routing: {default: per-agent}\n", "session: {dm_scope: per-channel-peer}\n", Override{}, sessionkey.ChannelPeer, "config.yaml:2"},
		{"agents: {defaults: {routing: {default: per-agent}}, list: [{id: a1, session: {dm_scope: per-peer}}]}\n", "", Override{}, sessionkey.Peer, "theclaw.yaml:1"},
		{"agents: {defaults: {session: {dm_scope: per-peer}}, list: [{id: a1, routing: {default: per-agent}}]}\n", "", Override{}, sessionkey.Main, "theclaw.yaml:1"},
		{"", "session: {dm_scope: main}\nrouting: {default: per-agent}\n", Override{}, sessionkey.Main, "config.yaml:2"},
		{"", "session: {dm_scope: main}\n", Override{"routing.default", "per-peer", "flag --x"}, sessionkey.AccountChannelPeer, "flag --x"},
		{"", "routing: {default: per-agent}\n", Override{"session.dm_scope", "per-peer", "env X"}, sessionkey.Peer, "env X"},
		{"session: {dm_scope: main}\n", "", Override{"flavor", "agentclaw", "env X"}, sessionkey.Main, "theclaw.yaml:1"},
		{"", "", Override{"flavor", "openclaw", "env X"}, sessionkey.Main, "flavor openclaw"},
	} {
		in := Layers{AgentID: "a1", Home: home(c.home), Agent: File{"config.yaml", []byte("agent_id: a1\n" + c.agent)}}
		if c.override.Key != "" {
			in.Overrides = []Override{c.override}
		}
		l := load(t, in)
		if v, _ := l.Get("session.dm_scope"); l.Config.DMScope() != c.want || v.Origin != c.origin {
			t.Errorf("%q, %q, %v: %s from %q, want %s from %q", c.home, c.agent, c.override, l.Config.DMScope(), v.Origin, c.want, c.origin)
		}
	}
}

// S4-11: a flavor is a table of defaults that every other layer overrides.
func TestFlavors(t *testing.T) {
	l := load(t, Layers{AgentID: "a1", Home: home("flavor: openclaw\nsession: {reset: {idle: 5m}}\n"), Agent: agent("agent_id: a1\nrouting: {groups: same}\n").Agent})
	if s := l.Config.Session; s.Reset.Mode != "daily" || s.Reset.At != "04:00" || s.Reset.Idle != 5*time.Minute || l.Config.Routing.Groups != "same" || l.Config.Flavor != "openclaw" {
		t.Errorf("%+v %+v", s, l.Config.Routing)
	}
	if l := load(t, agent("agent_id: a1\nflavor: agentclaw\n")); l.Config.Routing.Groups != "per-conversation" || l.Config.Session.Reset.Mode != "off" {
		t.Errorf("%+v", l.Config)
	}
}

// S4-01, S4-11: what a home may not have; each message names the place.
func TestRefusesHomes(t *testing.T) {
	for in, want := range map[string]string{
		"agents: {list: [{id: a, default: true}, {id: b, default: true}]}\n":        "1:49: the agents a and b are both the default",
		"agents: {list: [{id: a}, {id: a}]}\n":                                      "two entries with the id a",
		"agents: {list: [{name: x}]}\n":                                             "agents.list[0] has no id",
		"agents: {list: [{id: A}]}\n":                                               "\"A\" is not an agent id",
		"agents: {list: [{id: a, run: {timeout: 5}}]}\n":                            "run.timeout: must be a duration",
		"agents: {list: [{id: a, colour: red}]}\n":                                  "unknown key \"colour\"",
		"agents: {list: [{id: a, agent_id: a}]}\n":                                  "remove agent_id",
		"agents: {list: [{id: a, agent_dir: x}]}\n":                                 "must be an absolute directory",
		"agents: {list: [{id: a, workspace: x}]}\n":                                 "must be an absolute directory or one below ~/",
		"agents: {list: {}}\n":                                                      "must be a list",
		"agents: {lst: []}\n":                                                       "unknown key \"lst\" in agents (did you mean \"list\"?)",
		"run: {timeout: 5m}\nagents: {defaults: {run: {timeout: 6m}}}\n":            "2:27: run.timeout is set in two places",
		"defaults: {}\nagents: {defaults: {}}\n":                                    "another name of agents.defaults",
		"workspace: /a\ndefaults: {workspace: /b}\n":                                "workspace is set in two places",
		"run: {timeout: 5m}\ndefaults: {run: {concurrency: 2, timeout: 5m}}":        "is set in two places",
		"flavor: openclaw\nflavour: openclaw\n":                                     "two spellings of one key",
		"session: {dm_scope: main, dmScope: main}\n":                                "\"dm_scope\" and \"dmScope\" are two spellings",
		"session: {dm_scope: main}\nrouting: {default: per-peer}\n":                 "mean different conversations",
		"model: openai/a\npai: {model: b}\n":                                        "model and pai.model name different models",
		"model: openai/\n":                                                          "is not a model; write PROVIDER/MODEL",
		"model: {primary: a/b, fallbacks: [1, 2]}\n":                                "fallbacks: entry 1 must be text",
		"model: {fallbacks: [a/1, a/2, a/3, a/4, a/5, a/6, a/7, a/8, a/9]}":         "has 9 models, and 8 are the most",
		"memory_search: yes\n":                                                      "must have `key: value` lines",
		"bindings: [{agent_id: a}]\n":                                               "match.channel is",
		"bindings: [{agent_id: a, match: {channel: telegram, pear: {}}}]\n":         "unknown key \"pear\" in bindings[0].match (did you mean \"peer\"?)",
		"bindings: [{agent_id: a, match: {channel: telegram, peer: {kind: dm}}}]\n": "a kind or an id alone",
		"bindings: [{match: {channel: telegram}}]\n":                                "write the id of an agent",
		"bindings: {}\n":                                                         "must be a list",
		"commands: {allow: {approve: all}}\n":                                    "\"all\" is none of owners, allowed, none",
		"commands: {allow: {loud: none}}\n":                                      "there is no command \"loud\"",
		"commands: {allow: none}\n":                                              "must have `NAME: owners` lines",
		"commands: {enable: false}\n":                                            "did you mean \"enabled\"",
		"owners: [bob]\n":                                                        "write type:peer",
		"owners: telegram:1\n":                                                   "must be a list",
		"channels: {group: {type: telegram}}\n":                                  "not the name of an account",
		"channels: {tg: {dm: open}}\n":                                           "write the type of the account",
		"channels: {tg: {type: telegram, dm: all}}\n":                            "1:37: channels.tg: dm: \"all\" is not one of",
		"channels: {tg: {type: telegram, groups: {mode: on}}}\n":                 "groups.mode: \"on\" is not one of",
		"channels: {a: {type: x, default: true}, b: {type: x, default: true}}\n": "are both the default of type x",
		"channels: {tg: {type: telegram, allow_from: [7]}}\n":                    "must be text; put the value in quotes",
		"session: {reset: {at: '4:00'}}\n":                                       "not a time of day",
		"session: {reset: {idle: 9000h}}\n":                                      "is not between 1m and 8760h",
		"user_timezone: Mars/Base\n":                                             "not a time zone",
		"agents: {list: [{id: a, group_chat: {mention_patterns: ['(']}}]}\n":     "not a regular expression",
		"agents: {list: [{id: a, group_chat: {history_limit: 501}}]}\n":          "501 is not between 0 and 500",
	} {
		_, err := ReadHome(home(in))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "theclaw.yaml:") {
			t.Errorf("%q: %v\nwant %s", in, err, want)
		}
	}
	in := Layers{AgentID: "a1", Home: home("channels: {tg: {type: telegram}}\n"), Agent: agent("agent_id: a1\nchannels: {tg: {type: webhook, url: 'https://example.org/'}}\n").Agent}
	if _, err := Load(in); err == nil || !strings.Contains(err.Error(), "config.yaml:2:12: channels.tg has the name of an account") {
		t.Errorf("a channel with the name of an account: %v", err)
	}
}

// A key of config.yaml keeps the spelling that it has when it is changed.
func TestSetKeepsTheSpelling(t *testing.T) {
	out, err := Set(agent("agent_id: a1\nsession: {dmScope: main} # c\n"), "session.dm_scope", "per-peer")
	if err != nil || string(out) != "agent_id: a1\nsession: {dmScope: per-peer} # c\n" {
		t.Errorf("%s, %v", out, err)
	}
}

const homeJSON5 = `// the home
{
  model: {primary: 'openai/gpt-5', fallbacks: ['lab/small']},
  session: {reset: {mode: 'both', idle: '2h'}},
  agents: {
    defaults: {
      workspace: "/srv/main",
      memory_search: {enabled: true, query: {maxResults: 6, hybrid: {enabled: true, weights: [1, 2]}}},
    },
    list: [
      {id: 'main', default: true, name: 'Main', identity: {name: 'Max', theme: 'calm', emoji: '*'},
       group_chat: {mentionPatterns: ['\\bmax\\b'], history_limit: 20}},
      {id: 'work', workspace: '~/work', agentDir: '/srv/agents/work', model: 'anthropic/claude-opus',
       memorySearch: {query: {hybrid: {weights: [3]}}}, session: {dmScope: 'per-peer'}},
    ],
  },
  bindings: [
    {agentId: 'work', match: {channel: 'discord', accountId: '*', guild_id: '81'}},
    {agent_id: 'main', match: {channel: 'telegram', peer: {kind: 'dm', id: '7'}}}, /* the last */
  ],
  secrets: {
    SHOP: {ref: 'env:SHOP_TOKEN', hosts: ['api.shop.example', '*.example.net'], agents: ['work']},
    MAIL: {ref: 'file:/run/secrets/mail', hosts: ['mail.example.org']},
  },
  owners: ["telegram:1207"],
  channels: {
    tg: {type: 'telegram', dm: 'allowlist', allow_from: ['1', '2'], groups: {allow: ['*'], mode: 'always'}},
    dc: {type: 'discord', token: 'env:DC', default: true, enabled: false},
  },
}
`

// S4-12: the same settings as JSON5 have the same meaning, the order of accounts included.
func TestJSON5(t *testing.T) {
	five := File{"theclaw.json5", []byte(homeJSON5)}
	want, err1 := ReadHome(home(homeText))
	got, err2 := ReadHome(five)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	want.Version = got.Version
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, id := range []string{"main", "work", "other"} {
		in := Layers{AgentID: id, Home: home(homeText), Agent: File{"config.yaml", []byte("agent_id: " + id + "\n")}}
		yaml := load(t, in)
		in.Home = five
		json := load(t, in)
		if d := cmp.Diff(yaml.Config, json.Config); d != "" {
			t.Error(d)
		}
		for i, v := range yaml.Values {
			j := json.Values[i]
			if v.Key != j.Key || v.Value != j.Value || strings.HasPrefix(v.Origin, "theclaw.yaml:") != (j.Origin == "theclaw.json5") {
				t.Errorf("%v in YAML, %v in JSON5", v, j)
			}
		}
	}
}

// S4-12: a syntax error names line and column, another the key.
func TestRefusesJSON5(t *testing.T) {
	for in, want := range map[string]string{
		"{\n  run: {timeout: },\n}":  "theclaw.json5:2:18: this is not valid JSON5",
		"{ run: {timeout: '5m'} } x": "theclaw.json5:1:26: this is not valid JSON5",
		"{ run: {timeout: '5m'}":     "unexpected end of the file",
		"[1]":                        "theclaw.json5: the top of the file must be an object",
		"{run: {timout: '5m'}}":      "theclaw.json5: unknown key \"run.timout\" (did you mean \"run.timeout\"?)",
		"{run: {timeout: 5}}":        "theclaw.json5: run.timeout: must be a duration",
		"{agents: {list: [{id: 'a', identity: {nam: 'x'}}]}}":     "theclaw.json5: unknown key \"nam\" in agents.list[0].identity",
		"{agents: {list: [{id: 'a', run: {timeout: 5}}]}}":        "theclaw.json5: agents.list[0].run.timeout: run.timeout: must be",
		"{bindings: [{agent_id: 'a', match: {channel: 7}}]}":      "theclaw.json5: bindings[0].match: channel: must be text",
		"{session: {dm_scope: 'main', dmScope: 'main'}}":          "two spellings of one key",
		"{context_window: 0x2000}":                                "context_window: must be a whole number",
		strings.Repeat("{a:", 40) + "1" + strings.Repeat("}", 40): "nested too deeply",
	} {
		if _, err := ReadHome(File{"theclaw.json5", []byte(in)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", in, err, want)
		}
	}
}
