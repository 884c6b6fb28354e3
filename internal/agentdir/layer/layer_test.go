package layer

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/toolpolicy"
)

func agent(text string) Layers {
	return Layers{AgentID: "a1", Agent: File{"config.yaml", []byte(text)}}
}

func load(t testing.TB, in Layers) *Loaded {
	t.Helper()
	l, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// S0-48: what is missing is filled in.
func TestDefaults(t *testing.T) {
	l := load(t, agent("agent_id: a1\n"))
	want := config.Default()
	want.AgentID = "a1"
	if d := cmp.Diff(want, l.Config); d != "" {
		t.Error(d)
	}
	if l.Config.Routing.Default != "per-peer" || l.Config.Retry.MaxAttempts != 3 || l.Config.Deliver.MaxAge != 24*time.Hour ||
		l.Config.Run.Timeout != 600*time.Second || l.Config.Sandbox.Mode != "all" || l.Config.Sandbox.Level != "required" || l.Config.Sandbox.WorkspaceAccess != "rw" || l.Config.InputBudget() != 128000-4096-512 {
		t.Errorf("defaults of S0-43, S0-45, S0-46, S0-47 are wrong: %+v", l.Config)
	}
	for _, v := range l.Values {
		if v.Key != "agent_id" && v.Origin != "default" {
			t.Errorf("%s comes from %s", v.Key, v.Origin)
		}
		// The table of settings, by which they are explained, says the same.
		if of := config.Explain(v.Key); v.Key != "agent_id" && (len(of) == 0 || of[0].Key != v.Key || of[0].Default != v.Value) {
			t.Errorf("%s is %q, explained as %+v", v.Key, v.Value, of)
		}
	}
}

// A9: what a file has always said about it is still valid, and auto is the default.
func TestNotifyPeer(t *testing.T) {
	for line, want := range map[string]config.Switch{
		"": config.Auto, "on_error: {notify_peer: true}\n": config.On, "on_error: {notify_peer: false}\n": config.Off, "on_error: {notify_peer: auto}\n": config.Auto,
	} {
		l := load(t, agent("agent_id: a1\n"+line))
		if v, _ := l.Get("on_error.notify_peer"); l.Config.OnError.NotifyPeer != want || v.Value != string(want) {
			t.Errorf("%q: %v, %v", line, l.Config.OnError, v)
		}
	}
}

// A directory that the earlier tool made works as it is.
func TestLoadsRecordedConfig(t *testing.T) {
	data, err := os.ReadFile("testdata/v1-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l := load(t, Layers{AgentID: "e1", Agent: File{"config.yaml", data}})
	if l.Config.Pai.Model != "fake-model" || l.Config.Outbound == nil || len(l.Config.Outbound) != 0 {
		t.Errorf("got %+v", l.Config)
	}
	if _, ok := l.Config.Via("threads/peers/cli-cli"); ok {
		t.Error("S0-44: an empty outbound list delivers nothing")
	}
}

func TestOrigins(t *testing.T) {
	in := agent("agent_id: a1\nretry:\n  max_attempts: 5\nchannels:\n  hook: {type: webhook, url: 'https://example.org/h', secret: env:HOOK}\n")
	in.Home = File{"theclaw.yaml", []byte("# all\ndefaults:\n  retry: {max_attempts: 7, max_age: 2h}\n  pai:\n    model: big\ninbox_paths:\n  - /srv/inboxes\n")}
	in.Overrides = []Override{{"pai.provider", "offline", "env THECLAW_PROVIDER"}, {"run.timeout", "90s", "flag --timeout"}}
	l := load(t, in)
	for key, want := range map[string]Value{
		"agent_id":           {"agent_id", "a1", "config.yaml:1"},
		"kind":               {"kind", "user", "default"},
		"retry.max_attempts": {"retry.max_attempts", "5", "config.yaml:3"},
		"retry.max_age":      {"retry.max_age", "2h", "theclaw.yaml:3"},
		"pai.model":          {"pai.model", "big", "theclaw.yaml:5"},
		"pai.provider":       {"pai.provider", "offline", "env THECLAW_PROVIDER"},
		"run.timeout":        {"run.timeout", "1m30s", "flag --timeout"},
		"outbound":           {"outbound", "[{thread_pattern: '**', via: xgw}]", "default"},
		"channels.hook":      {"channels.hook", "{type: webhook, url: 'https://example.org/h', secret: 'env:HOOK'}", "config.yaml:5"},
	} {
		if got, ok := l.Get(key); !ok || got != want {
			t.Errorf("%s: got %+v, want %+v", key, got, want)
		}
	}
	if _, ok := l.Get("nothing"); ok {
		t.Error("an unknown key has a value")
	}
	if !slices.Equal(l.InboxPaths, []string{"/srv/inboxes"}) {
		t.Errorf("inbox paths %q", l.InboxPaths)
	}
}

// S0-39, S0-40, S0-43, S0-49: file, line, column, a caret, and what is wrong.
func TestRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"unknown key", "agent_id: a1\nkindd: user\n", "config.yaml:2:1: unknown key \"kindd\" (did you mean \"kind\"?)\n    2 | kindd: user\n        ^"},
		{"unknown nested key", "agent_id: a1\nretry:\n  max_atempts: 3\n", `config.yaml:3:3: unknown key "retry.max_atempts" (did you mean "retry.max_attempts"?)`},
		{"key without its group", "agent_id: a1\ntimeout: 5m\n", `unknown key "timeout" (did you mean "run.timeout"?)`},
		{"key of the home", "agent_id: a1\nstorage: {engine: sqlite}\n", `unknown key "storage"; storage belongs in theclaw.yaml`},
		{"unknown attribute", "agent_id: a1\nchannels: {c: {type: webhook, uri: 'https://example.org/'}}\n", `unknown key "uri" in channels.c (did you mean "url"?); there are`},
		{"unknown group", "agent_id: a1\nretri:\n  max_attempts: 3\n", `(did you mean "retry"?)`},
		{"key given twice", "agent_id: a1\nkind: user\nkind: system\n", "config.yaml:3:1:"},
		{"two documents", "agent_id: a1\n---\nagent_id: a1\n", "config.yaml:2:1: a second document"},
		{"empty", "", "config.yaml: the file is empty"},
		{"no agent_id", "kind: user\n", "agent_id is missing; it must be a1"},
		{"other agent_id", "agent_id: b2\n", `config.yaml:1:1: agent_id is "b2" but the directory is "a1"`},
		{"bad kind", "agent_id: a1\nkind: weird\n", "config.yaml:2:7: kind: \"weird\" is not one of system, user\n    2 | kind: weird\n              ^"},
		{"bad routing", "agent_id: a1\nrouting: {default: per-planet}\n", `"per-planet" is not one of per-peer, per-channel, per-agent`},
		{"text for number", "agent_id: a1\nretry: {max_attempts: three}\n", "config.yaml:2:23: retry.max_attempts: must be a whole number"},
		{"quoted number", "agent_id: a1\ncontext_window: '8000'\n", "context_window: must be a whole number"},
		{"octal", "agent_id: a1\nretry: {max_attempts: 010}\n", "must be a whole number"},
		{"fraction", "agent_id: a1\nretry: {max_attempts: 1.5}\n", "must be a whole number"},
		{"out of range", "agent_id: a1\nretry: {max_attempts: 0}\n", "0 is not between 1 and 100"},
		{"number for text", "agent_id: a1\npai: {model: 4}\n", "pai.model: must be text; put the value in quotes"},
		{"number for duration", "agent_id: a1\nretry: {max_age: 24}\n", "retry.max_age: must be a duration such as 90s or 24h"},
		{"negative duration", "agent_id: a1\nretry: {max_age: -1h}\n", "is not between 1s and 720h"},
		{"yes for true", "agent_id: a1\nsandbox: {network: yes}\n", "sandbox.network: must be off, open, or a list of hosts such as [git.example.org]"},
		{"no host", "agent_id: a1\nsandbox: {network: [git.example.org, 'https://example.org']}\n", "sandbox.network: https://example.org is no host"},
		{"a number for a network", "agent_id: a1\nsandbox: {network: 1}\n", "sandbox.network: must be off, open"},
		{"yes for auto", "agent_id: a1\non_error: {notify_peer: yes}\n", "on_error.notify_peer: must be true, false or auto"},
		{"list for group", "agent_id: a1\nretry: [1]\n", "must have `key: value` lines"},
		{"no value", "agent_id: a1\nkind:\n", "kind: has no value"},
		{"window too small", "agent_id: a1\ncontext_window: 4096\n", "config.yaml:2:1: context_window 4096 leaves no room"},
		{"outbound no list", "agent_id: a1\noutbound:\n", "outbound must be a list"},
		{"outbound unknown attribute", "agent_id: a1\noutbound: [{thread_pattern: '**', to: xgw}]\n", `unknown key "to" in outbound[0]; there are thread_pattern, via`},
		{"outbound unknown channel", "agent_id: a1\noutbound: [{thread_pattern: '**', via: hook}]\n", `there is no channel "hook"`},
		{"outbound bad pattern", "agent_id: a1\noutbound: [{thread_pattern: '../x', via: xgw}]\n", "is not a glob below threads/"},
		{"channel bad type", "agent_id: a1\nchannels: {c: {type: smoke}}\n", `type "smoke" is not one of`},
		{"channel bad name", "agent_id: a1\nchannels: {'../c': {type: xgw}}\n", "is not a channel name"},
		{"webhook without url", "agent_id: a1\nchannels: {c: {type: webhook}}\n", "a webhook needs a url"},
		{"webhook over http", "agent_id: a1\nchannels: {c: {type: webhook, url: 'http://example.org/'}}\n", "must use https"},
		{"xgw with url", "agent_id: a1\nchannels: {c: {type: xgw, url: 'https://example.org'}}\n", "is built in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(agent(c.in))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestRefusesInHome(t *testing.T) {
	for in, want := range map[string]string{
		"defaults: {agent_id: x}\n":                                           "theclaw.yaml:1:12: \"agent_id\" belongs in the config.yaml of one agent",
		"defaults: {inbox: {path: /x}}\n":                                     "belongs in the config.yaml",
		"default: {}\n":                                                       "unknown key \"default\" (did you mean \"defaults\"?)",
		"colour: red\n":                                                       "unknown key \"colour\"; there are agents, defaults, workspace, bindings, owners, commands, channels, gateway, inbox_paths, secrets, hooks, mcp, tools and storage, and the keys of agents",
		"secrets: {shop: {ref: sk-123, hosts: [a.org]}}\n":                    "secrets.shop: ref must be env:NAME or file:PATH",
		"secrets: {shop: {ref: 'env:SHOP'}}\n":                                "secrets.shop: hosts must name 1 to 20 hosts",
		"secrets: {shop: {ref: 'env:SHOP', hosts: ['https://a.org']}}\n":      "secrets.shop: https://a.org is no host",
		"secrets: {a b: {ref: 'env:SHOP', hosts: [a.org]}}\n":                 "the name of a secret has letters",
		"secrets: {shop: {ref: 'env:SHOP', hosts: [a.org], agents: [A B]}}\n": "is not the id of an agent",
		"secrets: {shop: {ref: 'env:SHOP', host: a.org}}\n":                   "unknown key \"host\" in secrets.shop",
		"run: {timeout: 5}\n":                                                 "must be a duration",
		"defaults: {run: {timout: 5m}}\n":                                     "unknown key \"run.timout\" (did you mean \"run.timeout\"?)",
		"storage: {engin: sqlite}\n":                                          "unknown key \"storage.engin\" (did you mean \"storage.engine\"?)",
		"storage: {shards: 3}\n":                                              "unknown key \"storage.shards\"; there are engine and dsns",
		"inbox_paths: /x\n":                                                   "must be a list",
		"defaults: {retry: {max_age: 1}}\n":                                   "must be a duration",
		"a: [\n":                                                              "theclaw.yaml:1",
	} {
		l := agent("agent_id: a1\n")
		l.Home = File{"theclaw.yaml", []byte(in)}
		if _, err := Load(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load %q: %v, want %s", in, err, want)
		}
		if err := CheckHome(l.Home); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckHome %q: %v, want %s", in, err, want)
		}
	}
	if err := CheckHome(File{"theclaw.yaml", []byte("defaults:\n# none yet\n")}); err != nil {
		t.Error(err)
	}
}

func TestRefusesOverrides(t *testing.T) {
	for _, o := range []Override{{"agent_id", "b", "flag --x"}, {"retry.max_attempts", "many", "flag --x"}, {"no.such", "1", "flag --x"}, {"outbound", "[]", "flag --x"}, {"memory.share", "1", "flag --x"}} {
		in := agent("agent_id: a1\n")
		in.Overrides = []Override{o}
		if _, err := Load(in); err == nil || !strings.HasPrefix(err.Error(), "flag --x: "+o.Key) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestAllProblemsAreNamed(t *testing.T) {
	_, err := Load(agent("agent_id: a1\nkind: x\nfoo: 1\nretry: {max_age: 7}\n"))
	e, ok := errors.AsType[*Error](err)
	if !ok || len(e.Problems) != 3 {
		t.Fatalf("got %v, want three problems", err)
	}
}

// Secrets are references, and one given as a value is not repeated in the message.
func TestSecretsAreReferences(t *testing.T) {
	const canary = "sk-canary-4711"
	for _, in := range []string{
		"agent_id: a1\nchannels:\n  c:\n    type: webhook\n    url: https://example.org/\n    secret: " + canary + "\n",
		"agent_id: a1\nchannels: {c: {type: webhook, url: 'https://u:" + canary + "@example.org/'}}\n",
		"agent_id: a1\nchannels: {c: {type: webhook, url: 'https://example.org/', secret: '" + canary + "'}}\n",
		"agent_id: a1\napi_key: " + canary + "\n",
		"agent_id: a1\napi_token: [" + canary + "\n",
	} {
		_, err := Load(agent(in))
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%q: %v", in, err)
		}
	}
	for _, ref := range []string{"env:HOOK_SECRET", "file:/run/secrets/hook"} {
		l := load(t, agent("agent_id: a1\nchannels:\n  c:\n    type: webhook\n    url: https://example.org/\n    secret: "+ref+"\n"))
		if l.Config.Channels["c"].Secret != ref {
			t.Errorf("reference %s was not kept", ref)
		}
	}
}

// S0-25: comments, blank lines and order survive.
func TestSet(t *testing.T) {
	const before = "# My agent.\nagent_id: a1   # do not touch\n\nkind: user\n\nretry:\n  # three was too few\n  max_attempts: 5\n\n# the end\n"
	got, err := Set(agent(before), "retry.max_attempts", "6")
	if err != nil || string(got) != strings.Replace(before, "5", "6", 1) {
		t.Errorf("got %v\n%s", err, got)
	}
	got, err = Set(agent(before), "retry.max_age", "48h")
	if want := strings.Replace(before, "attempts: 5\n", "attempts: 5\n  max_age: 48h\n", 1); err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
	for _, c := range []struct{ key, value, lines string }{
		{"outbound", "[]", "outbound: []"},
		{"outbound", "[{thread_pattern: peers/**, via: xgw}]", "outbound: [{thread_pattern: 'peers/**', via: xgw}]"},
		{"channels.hook", "{type: webhook, url: https://example.org/x, secret: env:S}", "channels:\n  hook: {type: webhook, url: 'https://example.org/x', secret: 'env:S'}"},
		{"pai.model", "true", "pai:\n  model: 'true'"},
		{"pai.model", "gpt-5:mini", "pai:\n  model: 'gpt-5:mini'"},
		{"memory.share", "true", "memory:\n  share: true"},
		{"on_error.notify_peer", "auto", "on_error:\n  notify_peer: auto"},
		{"on_error.notify_peer", "false", "on_error:\n  notify_peer: false"},
	} {
		got, err := Set(agent(before), c.key, c.value)
		if err != nil || !strings.Contains(string(got), c.lines+"\n") || strings.Replace(string(got), c.lines+"\n", "", 1) != before {
			t.Errorf("%s = %s: %v\n%s", c.key, c.value, err, got)
		}
	}
}

func TestSetRefuses(t *testing.T) {
	const before = "agent_id: a1\nkind: user\npai:\n  model: >-\n    gpt\n"
	for _, c := range []struct{ key, value, want string }{
		{"agent_id", "b", "cannot be changed"},
		{"kind", "weird", "is not one of"},
		{"kindd", "user", "did you mean"},
		{"retry.max_attempts", "6\nkind: system", "whole number"},
		{"inbox.path", "x\ny: 1", "one line"},
		{"outbound", "[{thread_pattern: '**', via: hook}]", "there is no channel"},
		{"outbound", "xgw", "must be a list"},
		{"outbound", "[]\nx: 1", "one line"},
		{"outbound", "[", "not closed"},
		{"channels.hook", "{type: webhook, url: 'https://e.org', secret: hunter2}", "reference"},
		{"channels.hook.url", "https://example.org", "type"},
		{"channels.hook.allow_private", "maybe", "true or false"},
		{"on_error.notify_peer", "maybe", "must be true, false or auto"},
		{"channels.hook.colour", "red", "unknown key"},
		{"channels.hook.secrt", "env:S", "did you mean \"channels.hook.secret\"?"},
		{"storage.engine", "postgres", "storage belongs in theclaw.yaml"},
		{"run.concurency", "8", "did you mean \"run.concurrency\"?"},
		{"run.concurrency", "-1", "-1 is not between 1 and 512"},
		{"channels.Hook", "{type: xgw}", "channel name"},
		// A3: what no deliverer can use is refused, with what to do.
		{"channels.one", "{type: xgw}", "write `via: xgw` in outbound"},
		{"channels.one", "{type: internal}", "is built in and needs no entry"},
		{"channels.one", "{type: console}", "is built in and needs no entry"},
		{"channels.xgw", "{type: webhook, url: 'https://example.org/'}", "give it another name"},
		{"channels.console", "{type: webhook, url: 'https://example.org/'}", "give it another name"},
		{"channels.one", "{type: webhook, url: 'https://:443'}", "url must be an address"},
		{"pai.model", "x", "by hand"},
		{"retry", "3", "retry is a group of settings; set one of them, such as retry."},
		{"channels", "{hook: {type: webhook}}", "channels are set one by one: channels.NAME"},
	} {
		got, err := Set(agent(before), c.key, c.value)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s = %q: %v, %q; want %s", c.key, c.value, err, got, c.want)
		}
	}
	if _, err := Set(agent("a: [\n"), "kind", "user"); err == nil || !strings.Contains(err.Error(), "config.yaml:1:") {
		t.Errorf("unreadable file: %v", err)
	}
}

func TestSetChannelAttribute(t *testing.T) {
	const before = "agent_id: a1\nchannels:\n  hook:\n    type: webhook # ours\n    url: https://old.example.org/\n"
	got, err := Set(agent(before), "channels.hook.url", "https://new.example.org/")
	if want := strings.Replace(before, "https://old.example.org/", "'https://new.example.org/'", 1); err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// S0-48: parse, write, parse is the identity.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyConfig(t)
		in := Layers{AgentID: want.AgentID, Agent: File{"config.yaml", config.Marshal(want)}}
		got, err := Load(in)
		if err != nil {
			t.Fatalf("%v\n%s", err, in.Agent.Data)
		}
		if d := cmp.Diff(want, got.Config); d != "" {
			t.Fatalf("%s\n%s", d, in.Agent.Data)
		}
		// And changing a key changes that key alone.
		fields := slices.DeleteFunc(config.Fields(), func(f *config.Field) bool { return f.OfHome })
		f := fields[rapid.IntRange(1, len(fields)-1).Draw(t, "field")]
		other := anyConfig(t)
		value := f.Show(&other)
		out, err := Set(in, f.Key, value)
		if err != nil {
			// The other limit may not fit the first; nothing else is refused.
			if f.Key == "context_window" || f.Key == "max_output_tokens" || value == "" {
				return
			}
			// The older form and the newer one in one file are.
			if f.Key == "approvals" || want.Approvals != "" && slices.Contains(execKeys, f.Key) {
				return
			}
			t.Fatalf("set %s to %q: %v\n%s", f.Key, value, err, in.Agent.Data)
		}
		if problem := f.Parse(&want, value); problem != "" {
			t.Fatal(problem)
		}
		if want.Approvals != "" {
			want.Tools.Exec.Security, want.Tools.Exec.Ask = config.OlderApprovals(want.Approvals)
		}
		in.Agent.Data = out
		again, err := Load(in)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, again.Config); d != "" {
			t.Fatalf("after set %s: %s", f.Key, d)
		}
	})
}

func anyConfig(t *rapid.T) config.Config {
	c := config.Default()
	name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.:@/+-]{0,20}`)
	c.AgentID = rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,63}`).Draw(t, "id")
	c.Kind = rapid.SampledFrom([]string{"user", "system"}).Draw(t, "kind")
	c.Pai = config.Pai{Provider: name.Draw(t, "provider"), Model: name.Draw(t, "model")}
	c.Inbox.Path = rapid.StringMatching(`([ -~äöü'"#:]{1,40})?`).Draw(t, "path")
	c.Inbox.External = rapid.SampledFrom([]string{"auto", "allow", "refuse"}).Draw(t, "external")
	c.Routing.Default = rapid.SampledFrom([]string{"per-peer", "per-channel", "per-agent"}).Draw(t, "routing")
	c.Retry = anyLimits(t)
	c.Deliver = config.Deliver{Limits: anyLimits(t), MaxChars: rapid.OneOf(rapid.Just(0), rapid.IntRange(64, 1_000_000)).Draw(t, "chars")}
	c.Reply.Break = rapid.SampledFrom([]string{"off", "text_end", "message_end"}).Draw(t, "break")
	c.Reply.Blocks = rapid.SampledFrom([]string{"off", "on"}).Draw(t, "blocks")
	c.Reply.Block.Min = rapid.IntRange(64, 20_000).Draw(t, "shortest block")
	c.HumanDelay = rapid.SampledFrom([]config.Delay{{}, {Min: 800 * time.Millisecond, Max: 2500 * time.Millisecond}, {Max: 30 * time.Second}}).Draw(t, "delay")
	c.Media.Transcribe = rapid.SampledFrom([]config.Transcribe{
		{}, {Provider: "openai"}, {Provider: "a.b/c", Model: "off", Timeout: 90 * time.Second}, {Command: []string{"it's", "a, b", "[x]", "{file}", "-m", ""}, Timeout: time.Minute},
	}).Draw(t, "transcribe")
	c.Reply.MessageTool = rapid.Bool().Draw(t, "messages")
	c.ContextWindow = rapid.IntRange(20_000, 100_000_000).Draw(t, "window")
	c.MaxOutputTokens = rapid.IntRange(1, 10_000).Draw(t, "output")
	c.Context.RecentMessages = rapid.IntRange(1, 1000).Draw(t, "recent")
	c.Run = config.Run{Concurrency: rapid.IntRange(1, 512).Draw(t, "lanes"), Timeout: time.Duration(rapid.IntRange(1, 86400).Draw(t, "timeout")) * time.Second}
	c.Sandbox = config.Sandbox{
		Mode: rapid.SampledFrom([]string{"required", "reduced", "off", "non-main", "all"}).Draw(t, "mode"), Level: rapid.SampledFrom([]string{"required", "reduced"}).Draw(t, "level"),
		Scope: rapid.SampledFrom([]string{"session", "agent"}).Draw(t, "scope"), WorkspaceAccess: rapid.SampledFrom([]string{"none", "ro", "rw"}).Draw(t, "access"),
		Network: rapid.SampledFrom([]config.Network{{}, {Open: true}, {Hosts: []string{"git.example.org", "*.example.net", "a.org:8443"}}}).Draw(t, "network"),
		Driver:  rapid.SampledFrom([]string{"auto", "docker"}).Draw(t, "driver"), Docker: c.Sandbox.Docker, Browser: c.Sandbox.Browser,
	}
	if rapid.Bool().Draw(t, "container") {
		c.Sandbox.Docker.Env, c.Sandbox.Docker.Binds = config.Variables{"A": rapid.StringMatching(`[A-Za-z0-9._ #-]{0,10}`).Draw(t, "value")}, []string{"/a:/b:ro"}
		c.Sandbox.Docker.Memory, c.Sandbox.Docker.CPUs, c.Sandbox.Docker.User = "512", "1.5", "1000:1000"
	}
	c.Tools.ByProvider = rapid.SampledFrom([]toolpolicy.Providers{nil, {"openai": {Profile: "coding", Deny: []string{"exec"}}, "x/y:1.2/3": {AlsoAllow: []string{"group:fs"}}}}).Draw(t, "by provider")
	c.Tools.Sandbox.Deny = rapid.SampledFrom([][]string{nil, {"image"}}).Draw(t, "sandbox tools")
	if c.Approvals = rapid.SampledFrom([]string{"", "none", "ask"}).Draw(t, "approvals"); c.Approvals != "" {
		c.Tools.Exec.Security, c.Tools.Exec.Ask = config.OlderApprovals(c.Approvals)
	} else {
		c.Tools.Exec.Security = rapid.SampledFrom([]string{"deny", "allowlist", "full"}).Draw(t, "security")
		c.Tools.Exec.Ask = rapid.SampledFrom([]string{"off", "on-miss", "always"}).Draw(t, "ask")
	}
	c.Tools.Exec.AskFallback = rapid.SampledFrom([]string{"deny", "allowlist", "full"}).Draw(t, "fallback")
	c.Tools.Exec.SafeBins = rapid.SampledFrom([][]string{nil, {"jq"}, {"jq", "wc"}}).Draw(t, "safe")
	c.Tools.ApprovalTimeout = rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(t, "answer within")
	c.Compaction.Strategy = rapid.SampledFrom([]string{"summarise", "truncate"}).Draw(t, "strategy")
	c.Compaction.KeepTokens = rapid.IntRange(0, 10_000_000).Draw(t, "keep")
	c.Workdir = config.Workdir{
		Shared: rapid.SampledFrom([]string{"", "/srv/a b"}).Draw(t, "shared"), Sync: rapid.SampledFrom([]string{"off", "snapshot"}).Draw(t, "sync"),
		MaxMiB: rapid.IntRange(1, 4096).Draw(t, "mib"), Ignore: rapid.SampledFrom([]string{"", "*.tmp build/out"}).Draw(t, "ignore"),
	}
	c.Memory.Share = rapid.Bool().Draw(t, "share")
	c.OnError.NotifyPeer = rapid.SampledFrom([]config.Switch{config.On, config.Off, config.Auto}).Draw(t, "notify")
	for range rapid.IntRange(0, 3).Draw(t, "channels") {
		if c.Channels == nil {
			c.Channels = map[string]config.Channel{}
		}
		c.Channels[rapid.StringMatching(`h[a-z0-9_-]{0,12}`).Draw(t, "channel")] = rapid.SampledFrom([]config.Channel{
			{Type: "webhook", URL: "https://example.org/a?b=c#d", Secret: "env:A_B"},
			{Type: "webhook", URL: "http://127.0.0.1:8080/", AllowPrivate: true, Secret: "file:/a b/c's"},
		}).Draw(t, "what")
	}
	if rapid.Bool().Draw(t, "outbound") {
		c.Outbound = []config.Outbound{}
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			c.Outbound = append(c.Outbound, config.Outbound{
				ThreadPattern: rapid.SampledFrom([]string{"**", "peers/**", "channels/*", "peers/tg-[ab]*", "main"}).Draw(t, "pattern"),
				Via:           rapid.SampledFrom([]string{"xgw", "internal", "console"}).Draw(t, "via"),
			})
		}
	}
	return c
}

func anyLimits(t *rapid.T) config.Limits {
	return config.Limits{
		MaxAttempts: rapid.IntRange(1, 100).Draw(t, "attempts"),
		MaxAge:      time.Duration(rapid.Int64Range(int64(time.Second), int64(30*24*time.Hour)).Draw(t, "age")),
	}
}

func FuzzLoad(f *testing.F) {
	v1, _ := os.ReadFile("testdata/v1-config.yaml")
	f.Add(v1)
	f.Add(config.Marshal(config.Default()))
	f.Add([]byte("agent_id: a1\nchannels: {h: {type: webhook, url: 'https://e.org', secret: env:X}}\noutbound:\n- {thread_pattern: a/**, via: h}\n"))
	f.Add([]byte("defaults:\n  retry: {max_age: 1h}\ninbox_paths: [/x]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := Layers{AgentID: "a1", Agent: File{"config.yaml", data}}
		l, err := Load(in)
		_ = CheckHome(File{"theclaw.yaml", data})
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || len(e.Problems) == 0 {
				t.Fatalf("not an Error with a problem: %v", err)
			}
			return
		}
		again, err := Load(Layers{AgentID: "a1", Agent: File{"config.yaml", config.Marshal(l.Config)}})
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if again.Config.Channels == nil {
			l.Config.Channels = nil
		}
		if d := cmp.Diff(l.Config, again.Config); d != "" {
			t.Fatal(d)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	data, err := os.ReadFile("testdata/v1-config.yaml")
	if err != nil {
		b.Fatal(err)
	}
	in := Layers{AgentID: "e1", Agent: File{"config.yaml", data}}
	for b.Loop() {
		if _, err := Load(in); err != nil {
			b.Fatal(err)
		}
	}
}
