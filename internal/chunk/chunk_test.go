package chunk_test

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/chunk"
)

// x is a text of n characters without a place to cut.
func x(n int) string { return strings.Repeat("x", n) }

func texts(list []chunk.Piece) (out []string) {
	for _, p := range list {
		out = append(out, p.Text)
	}
	return out
}

// S1-49: paragraph, newline, sentence, space, hard; fences stay whole.
func TestCuts(t *testing.T) {
	b := chunk.Bounds{Max: 64, Min: 10}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"short":      {"a\n\nb", []string{"a\n\nb"}},
		"nothing":    {" \n\t ", nil},
		"paragraph":  {x(20) + "\n\n" + x(20) + "\n" + x(10) + ". " + x(30), []string{x(20), x(20) + "\n" + x(10) + ". " + x(30)}},
		"line":       {x(20) + "\n" + x(20) + ". " + x(10) + " " + x(30), []string{x(20), x(20) + ". " + x(10) + " " + x(30)}},
		"sentence":   {x(20) + ". " + x(20) + " " + x(30), []string{x(20) + ".", x(20) + " " + x(30)}},
		"no space":   {strings.Repeat("日本", 20) + "。" + strings.Repeat("語", 30), []string{strings.Repeat("日本", 20) + "。", strings.Repeat("語", 30)}},
		"word":       {x(30) + " " + x(50), []string{x(30), x(50)}},
		"hard":       {x(130), []string{x(64), x(64), x(2)}},
		"too early":  {"a b\n\n" + x(80), []string{"a b\n\n" + x(59), x(21)}},
		"accent":     {strings.Repeat("x", 63) + "e\u0301" + x(9), []string{x(63), "e\u0301" + x(9)}},
		"family":     {x(62) + "👩\u200d👩\u200d👧" + x(3), []string{x(62), "👩\u200d👩\u200d👧" + x(3)}},
		"flags":      {x(63) + "🇩🇪🇫🇷", []string{x(63), "🇩🇪🇫🇷"}},
		"fence kept": {x(30) + "\n\n```go\n" + x(20) + "\n```\n" + x(9), []string{x(30), "```go\n" + x(20) + "\n```\n" + x(9)}},
		"fence torn": {"```go\n" + x(40) + "\n" + x(40) + "\n```\nend", []string{"```go\n" + x(40) + "\n```", "```go\n" + x(40) + "\n```\nend"}},
		"in a list": {"10. a\n\n    ```go\n    " + x(30) + "\n    " + x(30) + "\n    ```\n\n    " + x(10) + "\n11. b", []string{
			"10. a\n\n    ```go\n    " + x(30) + "\n    ```", "```go\n" + x(30) + "\n```", x(10) + "\n11. b",
		}},
		"in nested lists": {"- a\n  - b\n    ```\n    " + x(20) + "\n      " + x(20) + "\n    ```\n    " + x(20) + "\n  - c\n- d", []string{
			"- a\n  - b\n    ```\n    " + x(20) + "\n    ```", "```\n  " + x(20) + "\n```\n" + x(20), "- c\n- d",
		}},
		"behind a mark": {"- ```go\n  " + x(40) + "\n  " + x(40) + "\n  ```\n- b", []string{
			"- ```go\n  " + x(40) + "\n  ```", "```go\n" + x(40) + "\n```\n- b",
		}},
		"cut before": {"10. " + x(40) + "\n\n    ```\n    " + x(30) + "\n    ```", []string{"10. " + x(40), "```\n" + x(30) + "\n```"}},
		"in a quote": {"> a\n> ```go\n> " + x(40) + "\n> " + x(40) + "\n> ```\n> b", []string{
			"> a\n> ```go\n> " + x(40) + "\n> ```", "> ```go\n> " + x(40) + "\n> ```\n> b",
		}},
		"line in a quote": {"> ```\n> " + x(70) + "\n> ```", []string{"> ```\n> " + x(50) + "\n> ```", "> ```\n> " + x(20) + "\n> ```"}},
		"quote in a list": {"10. a\n    > ```\n    > " + x(30) + "\n    > " + x(30) + "\n    > ```", []string{
			"10. a\n    > ```\n    > " + x(30) + "\n> ```", "> ```\n> " + x(30) + "\n> ```",
		}},
		"quote that ends": {"> ```\n> " + x(30) + "\n\n" + x(50), []string{"> ```\n> " + x(30) + "\n> ```", x(50)}},
		"indented code": {"a\n\n    ```go\n    " + x(30) + "\n    " + x(30) + "\n    ```", []string{
			"a\n\n    ```go\n    " + x(30), "    " + x(30) + "\n    ```",
		}},
		"no list any more": {"10. a\n\nb\n\n    ```\n    " + x(30) + "\n    " + x(30) + "\n    ```", []string{
			"10. a\n\nb", "    ```\n    " + x(30), "    " + x(30) + "\n    ```",
		}},
		"indent": {x(30) + "\n\n    " + x(40), []string{x(30), "    " + x(40)}},
	} {
		if diff := cmp.Diff(c.want, texts(chunk.Split(c.text, b))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	units := chunk.Bounds{Max: 64, Min: 10, Units: utf16.RuneLen}
	if got := texts(chunk.Split(strings.Repeat("😀", 33)+"é", units)); !slices.Equal(got, []string{strings.Repeat("😀", 32), "😀é"}) {
		t.Errorf("in UTF-16 units: %q", got)
	}
	if got := chunk.Split(x(9999), chunk.Bounds{}); len(got) != 1 || got[0].Text != x(9999) {
		t.Errorf("without a bound: %d pieces", len(got))
	}
	if got := chunk.Split(x(9999), chunk.Bounds{Max: 1}); len(got) != 9999/chunk.Least+1 {
		t.Errorf("below the least: %d pieces", len(got))
	}
}

// words are what the texts of the property are made of.
var words = []string{
	"a", "word", "longer-word", " ", "  ", "\n", "\n\n", "\r\n", "\t", ". ", "! ", "。", "日本", "e\u0301", "👩\u200d👧", "🇩🇪", "`", "``",
	"```", "```go\n", "\n```\n", "\n```sh title\n", "~~~\n", "\n~~~\n", "````\n", "    ", "\n   ```\n", "x```", "item\n", "# head\n", "code()",
}

// containers make lists and quotes of what is around them.
var containers = []string{"- item\n", "\n10. item\n", "\n  - ", "\n    ```\n", "\n    ", "\n> ", "\n> ```\n> ", "\n    > ", "\n- ```\n"}

func random(chance *rand.Rand) string {
	words := words
	if chance.IntN(2) == 0 {
		words = slices.Concat(words, containers)
	}
	var s strings.Builder
	for range chance.IntN(400) {
		if w := words[chance.IntN(len(words))]; chance.IntN(20) == 0 {
			s.WriteString(strings.Repeat(w, chance.IntN(60)))
		} else {
			s.WriteString(w)
		}
	}
	return s.String()
}

// bare is a text without white space and without what a fence is made of: no cut may
// change it.
func bare(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n`~>", r) {
			return -1
		}
		return r
	}, s)
}

// named is a fence with words behind it, which may be said again.
var named = regexp.MustCompile("(```|~~~) *[^ \n`~]")

// open reports whether a reader of a piece would be inside of a block of code at its end. A text
// with lists or quotes is read as the package reads it; [TestCuts] shows that.
func open(text, piece string, begin int) bool {
	if slices.ContainsFunc(containers, func(s string) bool { return strings.Contains(text, strings.TrimRight(s, "\n")) }) {
		return (begin == 0 || text[begin-1] == '\n') && chunk.Closed(piece) != piece
	}
	return openAtEnd(piece)
}

func openAtEnd(text string) bool {
	mark, length := byte(0), 0
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\r\n")
		body := strings.TrimLeft(l, " ")
		if len(l)-len(body) > 3 || body == "" || body[0] != '`' && body[0] != '~' {
			continue
		}
		n := len(body) - len(strings.TrimLeft(body, body[:1]))
		info := strings.TrimSpace(body[n:])
		switch {
		case n < 3 || n > 8 || body[0] == '`' && strings.Contains(info, "`"):
		case mark == 0:
			mark, length = body[0], n
		case body[0] == mark && n >= length && info == "":
			mark = 0
		}
	}
	return mark != 0
}

// S1-49, over 4,000 texts: joined they are the text, none is too long, fences are in
// pairs, and whoever goes on behind any piece gets the same rest.
func TestPieces(t *testing.T) {
	seed := rand.Uint64()
	chance := rand.New(rand.NewPCG(seed, 0))
	for range 4_000 {
		text := random(chance)
		b := chunk.Bounds{Max: chunk.Least + chance.IntN(200)}
		if chance.IntN(2) == 0 {
			b.Min = 1 + chance.IntN(b.Max)
		}
		size := utf8.RuneCountInString
		if chance.IntN(2) == 0 {
			b.Units = utf16.RuneLen
			size = func(s string) int { return len(utf16.Encode([]rune(s))) }
		}
		list := chunk.Split(text, b)
		again := chance.IntN(len(list) + 1)
		var raw, shown strings.Builder
		for i, p := range list {
			raw.WriteString(p.Raw)
			shown.WriteString(p.Text + "\n")
			switch {
			case size(p.Text) > b.Max:
				t.Errorf("piece %d has %d units of %d", i, size(p.Text), b.Max)
			case !utf8.ValidString(p.Text):
				t.Errorf("piece %d tears a character", i)
			case strings.TrimSpace(p.Text) == "":
				t.Errorf("piece %d is blank", i)
			case open(text, p.Text, p.Reach-len(p.Raw)) && len(list) > 1:
				t.Errorf("piece %d leaves a fence open: %q", i, p.Text)
			case p.Reach != raw.Len():
				t.Errorf("piece %d reaches %d of %d", i, p.Reach, raw.Len())
			}
			if i != again {
				continue
			}
			if rest := chunk.From(text, p.Reach, b); cmp.Diff(list[i+1:], rest, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Raw" }, cmp.Ignore())) != "" && len(rest)+len(list[i+1:]) > 0 {
				t.Errorf("behind piece %d: %q, and not %q", i, texts(rest), texts(list[i+1:]))
			}
		}
		if strings.TrimSpace(text) != "" && raw.String() != text {
			t.Errorf("joined %q", raw.String())
		}
		if !named.MatchString(text) && bare(shown.String()) != bare(text) {
			t.Errorf("shown %q", bare(shown.String()))
		}
		if t.Failed() {
			t.Fatalf("seed %d, %+v, text %q", seed, b, text)
		}
	}
}

// What follows a text is not in a block of code of it.
func TestClosed(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "",
		"a":                   "a",
		"a\n```\nb\n```":      "a\n```\nb\n```",
		"a\n```go\nb":         "a\n```go\nb\n```",
		"~~~~\nb\n```\n\n":    "~~~~\nb\n```\n~~~~",
		"```\na\n```\n```\nb": "```\na\n```\n```\nb\n```",
	} {
		if got := chunk.Closed(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
		if got := chunk.Closed(want); got != want {
			t.Errorf("%q again: %q", want, got)
		}
	}
}
