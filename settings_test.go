package agents_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
)

// The page of settings is docs/settings.md, from the table of package config.
// `make settings-doc` writes it.
var writeSettings = flag.Bool("write-settings", false, "write docs/settings.md instead of comparing it")

const settingsPage = "docs/settings.md"

// TestDocsSettings compares the page of settings with the table.
func TestDocsSettings(t *testing.T) {
	want := settingsText(t)
	if *writeSettings {
		if err := os.WriteFile(settingsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if page, err := os.ReadFile(settingsPage); err != nil || string(page) != want {
		t.Errorf("%s differs from the table of settings (%v): run make settings-doc", settingsPage, err)
	}
}

// settingsGroups are the sections of the page: what their settings are about. A key without a
// dot belongs to the section that names it.
var settingsGroups = []struct{ title, keys, about string }{
	{"Agent", "agent_id kind flavor user_timezone skip_bootstrap", ""},
	{"Model", "model pai context_window max_output_tokens", "Providers and their keys are not settings of an agent: they are in `providers.yaml` and the environment of agentd."},
	{"Inbox and conversations", "inbox session routing queue media", ""},
	{"Turns", "run retry reply verbose_default reasoning_default on_error", ""},
	{"Prompt and memory", "context compaction memory memory_search", "A conversation, a peer and an agent each have a memory: a digest of earlier messages, in a file below `memory/` of the agent."},
	{"Tools and the sandbox", "tools mcp sandbox approvals", "See [tools.md](tools.md) for the tools, and [security.md](security.md) for what each mode of the sandbox enforces."},
	{"Working directory", "workdir", "For runners on several machines: see [scaling.md](scaling.md)."},
	{"Delivery", "deliver human_delay outbound channels", ""},
	{"Hooks", "hooks", "See [hooks.md](hooks.md) for the events, what a program gets and what it may answer."},
	{"Quotas", "quota price", "See [operations.md](operations.md#quotas). A quota refuses messages with the reason `QUOTA_EXCEEDED`; it stops no work that has begun. Without a limit for a day nothing is counted."},
}

// homeSection is the last one, of the keys of theclaw.yaml alone.
const homeSection = "The file theclaw.yaml"

func settingsText(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(settingsHead)
	written := map[string]bool{}
	for _, g := range settingsGroups {
		fmt.Fprintf(&b, "\n## %s\n\n", g.title)
		if g.about != "" {
			b.WriteString(g.about + "\n\n")
		}
		var of []config.Setting
		for key := range strings.FieldsSeq(g.keys) {
			of = append(of, config.Explain(key)...)
		}
		of = slices.DeleteFunc(of, func(s config.Setting) bool { return !s.Agent }) // the accounts below channels
		settingsTable(&b, of, written)
		example := agentExample(t, of)
		in := layer.Layers{AgentID: "alice", Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: alice\n" + example)}}
		if _, err := layer.Load(in); err != nil && example != "" {
			t.Errorf("the example of %q: %v", g.title, err)
		}
		if example != "" {
			fmt.Fprintf(&b, "\n```yaml\n%s```\n", example)
		}
	}
	settingsFlavors(&b)
	fmt.Fprintf(&b, "\n## %s\n\n%s\n", homeSection, settingsHome)
	var of []config.Setting
	for _, s := range config.Settings() {
		if !s.Agent {
			of = append(of, s)
		}
	}
	settingsTable(&b, of, written)
	if err := layer.CheckHome(layer.File{Name: "theclaw.yaml", Data: []byte(homeExample)}); err != nil {
		t.Errorf("the example of theclaw.yaml: %v", err)
	}
	fmt.Fprintf(&b, "\n```yaml\n%s```\n", homeExample)
	for _, s := range config.Settings() {
		if !written[s.Key] {
			t.Errorf("%s is in no section of %s", s.Key, settingsPage)
		}
	}
	return b.String()
}

const settingsHead = `# Settings

Written by ` + "`make settings-doc`" + ` from the table in internal/agentdir/config; do not edit it by hand.
` + "`agentctl config explain KEY`" + ` shows the same on a command line.

The settings of an agent are in its ` + "`config.yaml`" + `, as ` + "`agentctl config set`" + ` writes it, and in the file of
the home, ` + "`theclaw.yaml`" + `. A later layer takes precedence over the ones before it:

| layer | where |
|---|---|
| 1. default | the tables below |
| 2. flavor | the table of [flavors](#flavors), by the key ` + "`flavor`" + ` |
| 3. all agents | the top of theclaw.yaml and ` + "`agents.defaults`" + ` in it; a key in both is refused |
| 4. one agent | its entry in ` + "`agents.list`" + ` of theclaw.yaml |
| 5. one agent | its config.yaml |
| 6. environment, then flags | of the program that reads the settings |

Groups of keys are merged key by key, a list replaces the other. ` + "`agentctl config effective ID`" + ` shows every
value and where it comes from. A key that is not in these tables is refused, and so is a value beyond its
limits; a file with a mistake changes nothing and leaves the last good settings in force
([operations.md](operations.md#a-settings-file-that-cannot-be-used)). ` + "`agentctl config unset ID KEY`" + ` removes a key from a
config.yaml, and ` + "`agentctl config unset KEY`" + ` from theclaw.yaml.

A key may be written as ` + "`max_age`" + ` or ` + "`maxAge`" + `, and ` + "`flavor`" + ` as ` + "`flavour`" + `; both spellings in one group are refused.
The file of the home may be ` + "`theclaw.json5`" + ` instead of theclaw.yaml, with the same keys; a home with both is
refused. A mistake in the syntax of JSON5 is reported with line and column, any other with its key. Of a key
that is twice in one object of JSON5 the last one counts; YAML refuses it.

Both files are read again when they change; nothing needs to be restarted unless the table says so. The
last column says when a change is in force:

| in force | meaning |
|---|---|
| at once | the next call that uses the setting has the new value, also for work that has begun |
| next message | the next message has the new value; one that is being answered may keep the old one |
| after the agent was idle | the agent keeps the old value until its runner releases the lease: at the latest after ten seconds without work |
| restart of agentd | a running agentd may keep the old value |
| cannot be changed | the key has one valid value |

With several registries over PostgreSQL, the others have a new value of config.yaml within two seconds;
theclaw.yaml is a file of each home.

A duration is written as ` + "`90s`" + `, ` + "`10m`" + ` or ` + "`24h`" + `, a number with digits only, a boolean as ` + "`true`" + ` or ` + "`false`" + `.
`

const settingsHome = "The file is optional. Besides the keys of all agents, at its top or below `agents.defaults`, it holds what\n" +
	"belongs to the home. `agent_id`, `kind` and `inbox.path` are of one agent only.\n"

const homeExample = `agents:
  defaults:
    model: openai/gpt-5
    quota:
      messages_per_day: 1000
  list:
    - id: main
      default: true
      identity: {name: Max, theme: calm}
    - id: work
      session: {dm_scope: per-channel-peer}
bindings:
  - {agent_id: work, match: {channel: discord, guild_id: "81"}}
owners: ["telegram:1207"]
channels:
  tg: {type: telegram, dm: pairing, groups: {allow: ["-100200"]}}
mcp:
  servers:
    github:
      command: [github-mcp-server, stdio]
      env: {GITHUB_PERSONAL_ACCESS_TOKEN: "env:GH_TOKEN"}
      network: [api.github.com]
inbox_paths:
  - /srv/inboxes
storage:
  engine: postgres
  dsns: ["env:THECLAW_DSN"]
`

// settingsFlavors writes the table of the defaults in which the flavors differ.
func settingsFlavors(b *strings.Builder) {
	b.WriteString("\n## Flavors\n\nA flavor is a set of defaults, and openclaw has workspaces of its own. The flavors differ in these keys; all others have the\ndefaults of the tables above.\n\n| key |")
	names := config.Flavors()
	var keys []string
	for _, name := range names {
		b.WriteString(" " + name + " |")
		for _, d := range config.FlavorDefaults(name) {
			if !slices.Contains(keys, d.Key) {
				keys = append(keys, d.Key)
			}
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(names)) + "\n")
	for _, key := range keys {
		b.WriteString("| `" + key + "` |")
		for _, name := range names {
			c := config.Default()
			value := config.Lookup(key).Show(&c)
			for _, d := range config.FlavorDefaults(name) {
				if d.Key == key {
					value = d.Value
				}
			}
			if value == "" {
				b.WriteString(" by `routing.default` |")
				continue
			}
			b.WriteString(" `" + value + "` |")
		}
		b.WriteString("\n")
	}
}

// settingsTable writes one row for each setting.
func settingsTable(b *strings.Builder, of []config.Setting, written map[string]bool) {
	b.WriteString("| key | type | limits | default | in force | meaning |\n|---|---|---|---|---|---|\n")
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	code := func(s string) string {
		if s == "" {
			return "-"
		}
		return "`" + s + "`"
	}
	for _, s := range of {
		written[s.Key] = true
		kind, limits := s.Type, s.Limits
		if s.Unit != "" {
			kind += " (" + s.Unit + ")"
		}
		if s.Type == config.TypeChoice {
			limits = "`" + strings.Join(s.Values, "`, `") + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", s.Key, kind, cell(cmp.Or(limits, "-")), cell(code(s.Default)), s.Effect, cell(s.Meaning))
	}
}

// agentExample is a part of a config.yaml with the examples of these settings.
func agentExample(t *testing.T, of []config.Setting) string {
	t.Helper()
	var b strings.Builder
	var open []string // the groups that the last line is in
	for _, s := range of {
		f := config.Lookup(s.Key)
		if s.Example == "" || f == nil && s.Key != "outbound" && s.Key != "channels."+config.ChannelName || s.Key == "agent_id" ||
			s.Key == "tools.allow" || s.Key == "approvals" { // refused together with tools.also_allow, tools.exec.ask
			continue
		}
		value := s.Example
		if f != nil {
			c := config.Default()
			if problem := f.Parse(&c, value); problem != "" {
				t.Errorf("%s: %s", s.Key, problem)
			}
			value = f.Render(&c)
		}
		path := strings.Split(strings.ReplaceAll(s.Key, config.ChannelName, "hook"), ".")
		last, same := len(path)-1, 0
		for same < min(last, len(open)) && open[same] == path[same] {
			same++
		}
		for ; same < last; same++ {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", same), path[same])
		}
		fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", last), path[last], value)
		open = path[:last]
	}
	return b.String()
}
