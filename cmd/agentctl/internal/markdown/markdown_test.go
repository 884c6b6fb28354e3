package markdown_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"pgregory.net/rapid"

	"github.com/theclaw/agents/cmd/agentctl/internal/markdown"
)

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func look(s *markdown.Stream, width int) []string {
	kept, open := s.Lines(width)
	return append(append([]string{}, kept...), open...)
}

func laid(text string, width int, style markdown.Style) string {
	s := markdown.New(style)
	s.Write(text)
	return strings.Join(look(s, width), "\n")
}

func TestLooks(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"line breaks stay":   {"one\ntwo\n\nthree", "one\ntwo\n\nthree"},
		"bold and emphasis":  {"a **b _c_** *d* snake_case_word 2*3*4", "a \x1b[1mb \x1b[3mc\x1b[23m\x1b[22m \x1b[3md\x1b[23m snake_case_word 2\x1b[3m3\x1b[23m4"},
		"not closed":         {"a **b", "a **b"},
		"code and struck":    {"run `ls *` ~~no~~", "run ls * \x1b[9mno\x1b[29m"},
		"escaped":            {`\*plain\*`, "*plain*"},
		"link":               {"see [docs](https://x.y)", "see \x1b[4mdocs\x1b[24m (https://x.y)"},
		"heading":            {"## Title ##", "\x1b[1mTitle\x1b[0m"},
		"list":               {"- one\n  - two\n3. three\n- [x] done", "• one\n  • two\n3. three\n☑ done"},
		"quote":              {"> said", "│ \x1b[2msaid\x1b[0m"},
		"rule":               {"---", strings.Repeat("─", 40)},
		"fence":              {"```go\nx := *p\n```\nafter", "  x := *p\nafter"},
		"fence without end":  {"~~~\na\n", "  a"},
		"table":              {"| a | bb |\n|---|----|\n| 1 | `2` |\nend", "\x1b[1ma │ bb\x1b[0m\n──┼───\n1 │ 2\nend"},
		"not a table":        {"| a |\nb", "| a |\nb"},
		"table without end":  {"| a |\n|---|\n| 1 |", "\x1b[1ma\x1b[0m\n─\n| 1 |"},
		"an item that hangs": {"- one two three four five six seven eight nine ten eleven", "• one two three four five six seven\n  eight nine ten eleven"},
	} {
		if got := laid(c.text, 40, markdown.Style{}); got != c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, c.want)
		}
	}
	if got := laid("`x`", 40, markdown.Style{Color: true}); !strings.Contains(got, "\x1b[36mx") {
		t.Errorf("code has no colour: %q", got)
	}
	if got := laid("a *b*\nc", 40, markdown.Style{Plain: true, Edge: "┆ "}); got != "┆ \x1b[2ma *b*\x1b[0m\n┆ \x1b[2mc\x1b[0m" {
		t.Errorf("plain: %q", got)
	}
	if got := laid("hello\nyou", 40, markdown.Style{Lead: "a1: "}); got != "a1: hello\nyou" {
		t.Errorf("lead: %q", got)
	}
}

var piece = rapid.StringMatching("([a-z你é]{1,12}|[*_`~|>#-]{1,3}|\\[x\\]\\(y\\)|\\||```|[ \n]){1,40}")

// However a text is cut it looks the same, no line is too wide, and without
// colours there is none.
func TestPiecesAndWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(piece, 1, 12).Draw(t, "parts")
		width := rapid.IntRange(12, 90).Draw(t, "width")
		style := markdown.Style{Lead: "a1: ", Plain: rapid.Bool().Draw(t, "plain")}
		s := markdown.New(style)
		for i, p := range parts {
			s.Write(p)
			if i%2 == 0 {
				s.Lines(20 + i)
			}
		}
		whole := laid(strings.Join(parts, ""), width, style)
		if got := strings.Join(look(s, width), "\n"); got != whole {
			t.Fatalf("in pieces %q\nat once %q", got, whole)
		}
		for _, l := range strings.Split(whole, "\n") {
			if w := lipgloss.Width(l); w > width {
				t.Fatalf("%d columns of %d: %q", w, width, l)
			}
		}
		for _, e := range escapes.FindAllString(whole, -1) {
			if regexp.MustCompile(`\[(3[0-8]|4[0-8]|9\d)m`).MatchString(e) {
				t.Fatalf("a colour: %q", e)
			}
		}
	})
}

// What a look lays out again does not grow with the text.
func TestBoundedWork(t *testing.T) {
	s := markdown.New(markdown.Style{})
	s.Lines(80)
	for i := range 20_000 {
		s.Write(fmt.Sprintf("| row **%d** of many | and `more` |\n", i))
	}
	if _, open := s.Lines(80); len(open) > 102 {
		t.Errorf("a table leaves %d lines open", len(open))
	}
	s.Write("\n" + strings.Repeat("no end in sight ", 100_000))
	if _, open := s.Lines(80); len(open) > 60 {
		t.Errorf("a line leaves %d lines open", len(open))
	}
}

// BenchmarkDelta is one piece of a reply and one look, at the end of a megabyte.
func BenchmarkDelta(b *testing.B) {
	s := markdown.New(markdown.Style{Color: true})
	s.Write(strings.Repeat("Some **text** with `code` and a [link](https://x.y).\n", 20_000))
	s.Lines(100)
	for b.Loop() {
		s.Write("word ")
		s.Lines(100)
	}
}
