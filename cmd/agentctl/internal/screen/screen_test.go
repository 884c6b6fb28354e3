package screen

import (
	"bytes"
	"strings"
	"testing"
	"time"

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
	want := "ID  CONTENT\n1   " + strings.Repeat("x", 300) + "\n20  two⏎lines \\x1b[31m\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
