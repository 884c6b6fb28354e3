package screen

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/theclaw/agents/cmd/internal/command"
)

// Text of others cannot touch the terminal.
func TestCleanAndLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain äöü 日本 👍": "plain äöü 日本 👍", "a\nb\tc": "a\nb\tc", "\x1b[2Jgone": `\x1b[2Jgone`, "\r\a\x7f": `\x0d\x07\x7f`,
		"\u009b31m": `\x9b31m`, "\xff": "\uFFFD", "\u202egnp.exe": `\x202egnp.exe`,
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Line("a\nb\tc\u2028"); got != "a⏎b c⏎" {
		t.Errorf("line: %q", got)
	}
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "0s", -time.Hour: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m",
		47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := Age(now, now.Add(-d)); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	if got := Age(now, time.Time{}); got != "-" {
		t.Errorf("zero: %s", got)
	}
}

// What is not a terminal gets plain columns, whole and without colour.
func TestTableIsPlainInAPipe(t *testing.T) {
	var out bytes.Buffer
	e := command.New(nil, &out, nil, func(string) string { return "" }, "test")
	tab := NewTable(e, "id", "content")
	tab.Row("1", strings.Repeat("x", 300))
	tab.Row("20", "two\nlines \x1b[31m")
	tab.Print()
	tab.Row("3", "later") // below the same titles
	tab.Print()
	want := "ID  CONTENT\n1   " + strings.Repeat("x", 300) + "\n20  two⏎lines \\x1b[31m\n3   later\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// A table is never wider than the terminal: one column is cut first, then the least
// important ones go, and what has to stay is there at every width.
func TestTableFits(t *testing.T) {
	e := command.New(nil, nil, nil, func(string) string { return "" }, "test")
	const cause = "the provider refused the key 日本語日本語 👍👍 and nothing else is known"
	tab := NewTable(e, "agent", "state", "tokens", "dead", "path", "cause").Wide("path").Drop("tokens", "state")
	tab.Row("alice", "started", 1234567, 1, "/home/alice", cause)
	tab.Row("名前の長い", "stopped", 0, 12, "/home/b", "")
	shown := func(width int) string { return strings.Join(strings.Fields(tab.Lines(width)[0]), " ") }
	for width := 1; width < 140; width++ {
		for _, l := range tab.Lines(width) {
			if n := lipgloss.Width(l); n > width {
				t.Errorf("%d columns in %d: %s", n, width, l)
			}
		}
		if width >= 36 && !strings.Contains(shown(width), "DEAD") {
			t.Errorf("%d: no DEAD in %s", width, shown(width))
		}
	}
	for width, want := range map[int]string{
		120: "AGENT STATE TOKENS DEAD CAUSE", 60: "AGENT STATE TOKENS DEAD CAUSE", 50: "AGENT STATE DEAD CAUSE", 40: "AGENT DEAD CAUSE", 29: "AGENT CAUSE", 0: "AGENT STATE TOKENS DEAD CAUSE",
	} {
		if got := shown(width); got != want {
			t.Errorf("%d: %s, want %s", width, got, want)
		}
	}
	if l := tab.Lines(70)[1]; !strings.HasSuffix(l, "…") || lipgloss.Width(l) > 70 || lipgloss.Width(l) < 68 {
		t.Errorf("%d columns: %s", lipgloss.Width(l), l)
	}
	e.Flags.Output.Value = command.OutputWide
	if l := tab.Lines(40)[1]; !strings.Contains(l, "/home/alice") || !strings.HasSuffix(l, cause) {
		t.Errorf("wide: %s", l)
	}
}

// One description of a list is printed in every form.
func TestList(t *testing.T) {
	type item struct {
		Name string `json:"name"`
		Size int    `json:"size"`
	}
	for form, want := range map[string]string{
		command.OutputTable: "NAME  SIZE\na     1\nb     2\nthat is all\n",
		command.OutputWide:  "NAME  SIZE  TWICE\na     1     2\nb     2     4\nthat is all\n",
		command.OutputName:  "a\nb\n",
		command.OutputYAML:  "- name: a\n  size: 1\n- name: b\n  size: 2\n",
		command.OutputJSON:  "[\n  {\n    \"name\": \"a\",\n    \"size\": 1\n  },\n  {\n    \"name\": \"b\",\n    \"size\": 2\n  }\n]\n",
	} {
		var out bytes.Buffer
		e := command.New(nil, &out, nil, func(string) string { return "" }, "test")
		e.Flags.Output.Value, e.Flags.JSON = form, form == command.OutputJSON
		tab := NewTable(e, "name", "size", "twice").Wide("twice").Then(func() { out.WriteString("that is all\n") })
		err := List(tab, []item{{"a", 1}, {"b", 2}}, func(i item) []any { return []any{i.Name, i.Size, 2 * i.Size} })
		if err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", form, err, &out, want)
		}
	}
}
