package agents_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
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
	{"Agent", "agent_id kind", ""},
	{"Model", "pai context_window max_output_tokens", "Providers and their keys are not settings of an agent: they are in `providers.yaml` and the environment of agentd."},
	{"Inbox and conversations", "inbox routing queue", ""},
	{"Turns", "run retry reply on_error", ""},
	{"Prompt and memory", "context compaction memory", "A conversation, a peer and an agent each have a memory: a digest of earlier messages, in a file below `memory/` of the agent."},
	{"Tools and the sandbox", "sandbox approvals", "See [security.md](security.md) for what each mode enforces."},
	{"Working directory", "workdir", "For runners on several machines: see [scaling.md](scaling.md)."},
	{"Delivery", "deliver outbound channels", ""},
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

The settings of an agent are in its ` + "`config.yaml`" + `, as ` + "`agentctl config set`" + ` writes it, and what is below
` + "`defaults:`" + ` in ` + "`theclaw.yaml`" + ` holds for all agents of the home. The value of config.yaml takes precedence
over that of theclaw.yaml, and this over the default. ` + "`agentctl config effective ID`" + ` shows every value and
where it comes from. A key that is not in these tables is refused, and so is a value beyond its limits; a
file with a mistake changes nothing and leaves the last good settings in force
([operations.md](operations.md#a-settings-file-that-cannot-be-used)).

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

const settingsHome = "The file is optional. Besides the defaults of all agents it holds what belongs to the home. A key of an agent\n" +
	"is below `defaults:`, except `agent_id`, `kind` and `inbox.path`, which are of one agent only.\n"

const homeExample = `defaults:
  pai:
    model: gpt-5
  quota:
    messages_per_day: 1000
inbox_paths:
  - /srv/inboxes
storage:
  engine: postgres
  dsns: ["env:THECLAW_DSN"]
`

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
	group := ""
	for _, s := range of {
		head, leaf, nested := strings.Cut(strings.ReplaceAll(s.Key, config.ChannelName, "hook"), ".")
		f := config.Lookup(s.Key)
		if s.Example == "" || f == nil && s.Key != "outbound" && s.Key != "channels."+config.ChannelName || s.Key == "agent_id" {
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
		switch {
		case !nested:
			fmt.Fprintf(&b, "%s: %s\n", s.Key, value)
		case head != group:
			fmt.Fprintf(&b, "%s:\n", head)
			fallthrough
		default:
			fmt.Fprintf(&b, "  %s: %s\n", leaf, value)
		}
		group = head
	}
	return b.String()
}
