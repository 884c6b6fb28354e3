package markdown_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
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
		"line breaks stay":    {"one\ntwo\n\nthree", "one\ntwo\n\nthree"},
		"bold and emphasis":   {"a **b _c_** *d* snake_case_word 2*3*4", "a \x1b[1mb \x1b[3mc\x1b[23m\x1b[22m \x1b[3md\x1b[23m snake_case_word 2*3*4"},
		"stars that multiply": {"2*3*4 = *x*, a*b*c, (1)*(2)*3, **2**3, 这是*重点*内容, (*so*)", "2*3*4 = \x1b[3mx\x1b[23m, a*b*c, (1)*(2)*3, \x1b[1m2\x1b[22m3, 这是\x1b[3m重\x1b[0m\n\x1b[3m点\x1b[23m内容, (\x1b[3mso\x1b[23m)"},
		"entities":            {"a &amp; b &lt;c&gt; &#8364; &hearts; `&amp;` &nosuch; &#27; &#x202e; &amp", "a & b <c> € ♥ &amp; &nosuch; &#27;\n&#x202e; &amp"},
		"wide characters":     {"漢字は空白なしで続く文章ですから、どこでも折り返すことができます。ok", "漢字は空白なしで続く文章ですから、どこで\nも折り返すことができます。ok"},
		"closing marks":       {"漢字は空白なしで続く文章ですからどこでも、ok", "漢字は空白なしで続く文章ですからどこで\nも、ok"},
		"joined emoji":        {strings.Repeat("👩\u200d👧", 21), strings.Repeat("👩\u200d👧", 20) + "\n👩\u200d👧"},
		"not closed":          {"a **b", "a **b"},
		"code and struck":     {"run `ls *` ~~no~~", "run ls * \x1b[9mno\x1b[29m"},
		"escaped":             {`\*plain\*`, "*plain*"},
		"link":                {"see [docs](https://x.y)", "see \x1b[4mdocs\x1b[24m (https://x.y)"},
		"heading":             {"## Title ##", "\x1b[1mTitle\x1b[0m"},
		"list":                {"- one\n  - two\n3. three\n- [x] done", "• one\n  • two\n3. three\n☑ done"},
		"quote":               {"> said", "│ \x1b[2msaid\x1b[0m"},
		"rule":                {"---", strings.Repeat("─", 40)},
		"fence":               {"```go\nx := *p\n```\nafter", "  x := *p\nafter"},
		"a fence in a list":   {"- one\n    ```sh\n    ls\n      pwd\n    ```\n- two", "• one\n  ls\n    pwd\n• two"},
		"fence without end":   {"~~~\na\n", "  a"},
		"table":               {"| a | bb |\n|---|----|\n| 1 | `2` |\nend", "\x1b[1ma\x1b[0m  │ \x1b[1mbb\x1b[0m\n───┼───\n1  │ 2\nend"},
		"table sides":         {"a | b | c\n:-- | --: | :-:\nx | 1 | yy &amp; \\| z\nlonger | 22 | y", "\x1b[1ma\x1b[0m      │  \x1b[1mb\x1b[0m │    \x1b[1mc\x1b[0m\n───────┼────┼─────────\nx      │  1 │ yy & | z\nlonger │ 22 │    y"},
		"table that is wide":  {"| n | what |\n|---|---|\n| 1 | some words that are too many for one line |\n| 表 | 日<br>本 |", "\x1b[1mn\x1b[0m  │ \x1b[1mwhat\x1b[0m\n───┼────────────────────────────────────\n1  │ some words that are too many for\n   │ one line\n表 │ 日\n   │ 本"},
		"text with a bar":     {"a | *b*\nc", "a | \x1b[3mb\x1b[23m\nc"},
		"not a table":         {"| a |\nb", "| a |\nb"},
		"table without end":   {"| a |\n|---|\n| 1 |", "\x1b[1ma\x1b[0m\n──\n1"},
		"an item that hangs":  {"- one two three four five six seven eight nine ten eleven", "• one two three four five six seven\n  eight nine ten eleven"},
	} {
		if got := laid(c.text, 40, markdown.Style{}); got != c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, c.want)
		}
	}
	if got := laid("`x`", 40, markdown.Style{Color: true}); !strings.Contains(got, "\x1b[36mx") {
		t.Errorf("code has no colour: %q", got)
	}
	if got := laid("a *b*\nc", 40, markdown.Style{Plain: true, Faint: true, Edge: "┆ "}); got != "┆ \x1b[2ma *b*\x1b[0m\n┆ \x1b[2mc\x1b[0m" {
		t.Errorf("plain: %q", got)
	}
	if got := laid("2*3*4 = *x* &amp;\n# no\n| a |", 40, markdown.Style{Plain: true}); got != "2*3*4 = *x* &amp;\n# no\n| a |" {
		t.Errorf("as it is: %q", got)
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
	if _, open := s.Lines(80); len(open) > 1 {
		t.Errorf("rows that are no table leave %d lines open", len(open))
	}
	s.Write("| a | b |\n|---|---|\n")
	for i := range 99 {
		s.Write(fmt.Sprintf("| row **%d** of many | and `more` |\n", i))
		if _, open := s.Lines(80); i < 98 && len(open) != i+3 || i == 98 && len(open) > 0 {
			t.Errorf("%d rows leave %d lines open", i+3, len(open))
		}
	}
	s.Write("| one | two *more* |\n| three")
	kept, open := s.Lines(80)
	if got := kept[len(kept)-1] + "\n" + strings.Join(open, "\n"); got != "one            │ two \x1b[3mmore\x1b[23m\nthree          │" {
		t.Errorf("the row behind the many: %q", got)
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

// What is left of joined emoji has the columns that a terminal counts by its characters.
func TestApart(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain",
		"👩\u200d👩\u200d👧 and 👍🏽 \u2764\ufe0f": "👩👩👧 and 👍 \u2764",
		"क्\u200dष":     "क्\u200dष",
		"1\ufe0f\u20e3": "1\u20e3",
		"🏽":             "🏽",
	} {
		got := markdown.Apart(text)
		if got != want || strings.Contains(text, "👩") && ansi.StringWidthWc(got) != ansi.StringWidth(got) {
			t.Errorf("%q: %q, want %q; %d columns by characters, %d by clusters", text, got, want, ansi.StringWidthWc(got), ansi.StringWidth(got))
		}
		for at := range text { // in two pieces
			if two := markdown.Apart(markdown.Apart(text[:at]) + text[at:]); two != want {
				t.Errorf("%q cut at %d: %q", text, at, two)
			}
		}
	}
	for apart, want := range map[bool]string{false: "क्ष क्ष क्ष क्ष", true: "क्ष क्ष क्ष\nक्ष"} { // one column each, or two
		if got := laid("क्ष क्ष क्ष क्ष", 10, markdown.Style{Apart: apart}); got != want {
			t.Errorf("counted by characters %v: %q", apart, got)
		}
	}
	table := "| a | b |\n|---|---|\n| 👩\u200d👧 | 1 |"
	if got := laid(table, 40, markdown.Style{Apart: true}); !strings.HasSuffix(got, "\n👩👧 │ 1") {
		t.Errorf("in a table: %q", got)
	}
}

// Each color can be read: on a dark background none is blue, on a light one none is cyan or
// magenta, and none is beyond the sixteen.
func TestColors(t *testing.T) {
	const text = "# head\n`code` [link](https://x.y)\n```\ncode\n```\n| `a` | b |\n|---|---|\n| 1 | 2 |"
	for light, none := range map[bool]string{false: `\[([0-9;]*;)?(34|38|48)`, true: `\[([0-9;]*;)?(3[2356]|38|48)`} {
		got := laid(text, 40, markdown.Style{Color: true, Light: light})
		if bad := regexp.MustCompile(none).FindString(got); bad != "" || !strings.Contains(got, map[bool]string{false: "\x1b[36m", true: "\x1b[34m"}[light]) {
			t.Errorf("light %v: %q in %q", light, bad, got)
		}
	}
}
