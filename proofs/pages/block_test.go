package pages_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/proofs/pages"
)

const fence = "```"

func TestParse(t *testing.T) {
	page := strings.ReplaceAll(`# Title
~~~sh run
echo one
~~~

~~~text
one
~~~
~~~text
is not compared
~~~
<!-- run
setup
-->
~~~bash fails
false
~~~
Prose.

~~~text
is not compared
~~~
- item

  ~~~sh shown: needs a cluster
  helm
  ~~~
~~~sh heavy: minutes
make
~~~
~~~yaml
a: b
~~~
~~~console run
$ printf a \
> b
ab
~~~
`, "~~~", fence)
	got, err := pages.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	want := []pages.Block{
		{Line: 2, Kind: pages.Run, Commands: "echo one\n", Output: []string{"one"}, Compared: true},
		{Line: 12, Kind: pages.Setup, Commands: "setup\n"},
		{Line: 15, Kind: pages.Fails, Commands: "false\n"},
		{Line: 25, Kind: pages.Shown, Reason: "needs a cluster", Commands: "helm\n"},
		{Line: 28, Kind: pages.Heavy, Reason: "minutes", Commands: "make\n"},
		{Line: 34, Kind: pages.Run, Commands: "printf a \\\nb\n", Output: []string{"ab"}, Compared: true},
	}
	if len(got) != len(want) {
		t.Fatalf("%d blocks, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if g, w := got[i], want[i]; g.Line != w.Line || g.Kind != w.Kind || g.Reason != w.Reason || g.Commands != w.Commands ||
			g.Compared != w.Compared || !slices.Equal(g.Output, w.Output) {
			t.Errorf("block %d is %+v, want %+v", i, g, w)
		}
	}
}

// A block without a mark, with a wrong one or without an end is an error with its line.
func TestParseRefuses(t *testing.T) {
	for bad, want := range map[string]string{
		"\n~~~sh\necho\n~~~\n":          `line 2: the mark "" is none`,
		"~~~sh runs\necho\n~~~\n":       `line 1: the mark "runs" is none`,
		"~~~console\n$ echo\n~~~\n":     `line 1: the mark "" is none`,
		"~~~sh shown\necho\n~~~\n":      "line 1: the mark shown needs a reason",
		"~~~sh heavy: \necho\n~~~\n":    "line 1: the mark heavy needs a reason",
		"~~~sh run: now\necho\n~~~\n":   "line 1: the mark run has no reason",
		"~~~sh setup\necho\n~~~\n":      `line 1: the mark "setup" is none`,
		"~~~sh run\necho\n":             "line 1: the block has no end",
		"~~~text\n~~~\n<!-- run\necho ": "line 3: the comment has no end",
	} {
		if _, err := pages.Parse(strings.ReplaceAll(bad, "~~~", fence)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

// What differs between two runs is taken out, and nothing else.
func TestNormalize(t *testing.T) {
	same := [][2]string{
		{"13:38:55.231  claimed, 4ms after it was pushed", "09:00:01.002  claimed, 1.2s after it was pushed"},
		{"answered in less than 1ms, 649 tokens in, 13 out", "answered in 12ms, 7 tokens in, 1 out"},
		{"at /tmp/theclaw-tour/agents/alice", "at /home/me/.theclaw/agents/alice"},
		{"serves at unix:///tmp/a/run/registry.sock", "serves at unix:///home/me/b/c/run/registry.sock"},
		{"alice  t:7  0s   0", "alice  t:7  11s  0"},
		{"run id 6793c086-3691-4158-98d4-ad4f5ce47e37:2:500717b17b45f152", "run id 00000000-0000-4158-98d4-ad4f5ce47e37:2:0000000000000000"},
		{`"id":"01M7WJWZWZ40MB263Q3F56TFT4"`, `"id":"01M7WJWZWZ40MB263Q3F56TFT5"`},
		{"1334 tokens in, 24 out, 0.6 s", "1 tokens in, 2 out, 12 s"},
		{"on 2026-11-20 (times are UTC)", "on 2027-01-01 (times are UTC)"},
		{"70201 MiB free", "1.5 GiB free"},
	}
	for _, s := range same {
		if a, b := pages.Normalize(s[:1]), pages.Normalize(s[1:]); !slices.Equal(a, b) {
			t.Errorf("%q and %q differ as %q and %q", s[0], s[1], a, b)
		}
	}
	differ := [][2]string{
		{"message 1 accepted", "message 2 accepted"},
		{"t:7 dropped", "t:8 dropped"},
		{"at /tmp/theclaw-tour/agents/alice", "at /tmp/theclaw-tour/agents/bob"},
		{"threads/peers/a", "threads/peers/b"},
		{"exit 1", "exit 2"},
		{"5. recall", "6. recall"},
	}
	for _, d := range differ {
		if a, b := pages.Normalize(d[:1]), pages.Normalize(d[1:]); slices.Equal(a, b) {
			t.Errorf("%q and %q are both %q", d[0], d[1], a)
		}
	}
	if got := pages.Normalize([]string{"", "/tmp/b: line 3:  4242 Killed    agentd all", "a  b ", " "}); !slices.Equal(got, []string{"a b"}) {
		t.Errorf("got %q", got)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got string
		match     bool
	}{
		{"a b", "a b", true},
		{"a b", "a b c", false},
		{"a b c", "a b", false},
		{"", "", true},
		{"", "a", false},
		{"...", "", true},
		{"a ... c", "a b b c", true},
		{"a ... c", "a c", true},
		{"a ... c", "a b c d", false},
		{"... b ...", "a b c b d", true},
		{"... x ...", "a b", false},
	} {
		if got := pages.Matches(strings.Fields(c.want), strings.Fields(c.got)); got != c.match {
			t.Errorf("%q, %q: %v", c.want, c.got, got)
		}
	}
}
