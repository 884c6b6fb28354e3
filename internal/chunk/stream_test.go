package chunk_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/chunk"
)

// S4-43: a block ends at the first break point behind Min that is good enough, or when it is full; code
// stays intact where it fits.
func TestStreamBreaks(t *testing.T) {
	b := chunk.Bounds{Min: 20, Max: 64}
	for name, c := range map[string]struct {
		least chunk.Break
		text  string
		want  []string // complete pieces
		idle  string   // of the rest
	}{
		"too short":      {chunk.Sentence, x(10) + "\n\n" + x(5) + ". ", nil, x(10) + "\n\n" + x(5) + "."},
		"paragraph":      {chunk.Paragraph, x(20) + "\n\n" + x(20) + "\n" + x(10), []string{x(20)}, x(20)},
		"first of two":   {chunk.Paragraph, x(20) + "\n\n" + x(20) + "\n\n", []string{x(20), x(20)}, ""},
		"line":           {chunk.Line, x(20) + "\n" + x(20) + "\n" + x(10), []string{x(20), x(20)}, ""},
		"sentence":       {chunk.Sentence, x(20) + ". " + x(20) + "! " + x(17), []string{x(20) + ".", x(20) + "!"}, ""},
		"what follows":   {chunk.Sentence, x(20) + ". abc", nil, x(20) + "."},
		"full":           {chunk.Paragraph, x(40) + " " + x(20) + " " + x(40), []string{x(40) + " " + x(20)}, ""},
		"not yet full":   {chunk.Paragraph, x(40) + " " + x(30), nil, x(40)},
		"code":           {chunk.Paragraph, "```go\n" + x(20) + "\n\n" + x(10) + "\n```\n\nend", []string{"```go\n" + x(20) + "\n\n" + x(10) + "\n```"}, ""},
		"torn code":      {chunk.Line, "```go\n" + x(50) + "\n" + x(50) + "\n", []string{"```go\n" + x(50) + "\n```"}, "```go\n" + x(50) + "\n```"},
		"half of a mark": {chunk.Paragraph, "text\n``", nil, "text"},
		"begun code":     {chunk.Paragraph, "text\n```go\n", nil, "text"},
		"half of a word": {chunk.Paragraph, "one two thr", nil, "one two"},
		"no spaces":      {chunk.Paragraph, "日本", nil, "日本"},
	} {
		s := chunk.NewStream("", b, c.least)
		s.Add(c.text)
		var got []string
		for p, ok := s.Next(); ok; p, ok = s.Next() {
			got = append(got, p.Text)
		}
		p, _ := s.Idle()
		if !slices.Equal(got, c.want) || p.Text != c.idle {
			t.Errorf("%s: %q and %q, want %q and %q", name, got, p.Text, c.want, c.idle)
		}
	}
}

// S1-49, S2-49, S4-43, over 2,000 texts in random pieces, with pauses and new processes in between: the
// blocks joined are the text, none is too long or blank, and fences are in pairs.
func TestStream(t *testing.T) {
	seed := rand.Uint64()
	chance := rand.New(rand.NewPCG(seed, 0))
	blocks, idle := 0, 0
	for range 2_000 {
		text := random(chance)
		b := chunk.Bounds{Max: chunk.Least + chance.IntN(200)}
		b.Min = 1 + chance.IntN(b.Max)
		least := chunk.Break(chance.IntN(3))
		s := chunk.NewStream("", b, least)
		raw := ""
		take := func(p chunk.Piece, last bool) {
			raw += p.Raw
			switch size := utf8.RuneCountInString(p.Text); {
			case size > b.Max:
				t.Errorf("a block has %d characters of %d: %q", size, b.Max, p.Text)
			case strings.TrimSpace(p.Text) == "":
				t.Errorf("a block is blank: %q", p.Raw)
			case open(text, p.Text, p.Reach-len(p.Raw)) && !(last && p.Raw == text):
				t.Errorf("a block leaves a fence open: %q", p.Text)
			case p.Reach != len(raw):
				t.Errorf("a block reaches %d of %d", p.Reach, len(raw))
			}
			blocks++
		}
		for left := text; left != ""; {
			n := 1 + chance.IntN(40)
			for n = min(n, len(left)); n < len(left) && !utf8.RuneStart(left[n]); {
				n++
			}
			s.Add(left[:n])
			left = left[n:]
			for p, ok := s.Next(); ok; p, ok = s.Next() {
				take(p, false)
			}
			switch chance.IntN(20) {
			case 0:
				if p, ok := s.Idle(); ok {
					take(p, false)
					idle++
				}
			case 1: // another process goes on behind the last block
				s = chunk.NewStream(raw, b, least)
				s.Add(text[len(raw) : len(text)-len(left)])
			}
		}
		if s.Text() != text || s.Reach() != len(raw) {
			t.Errorf("%d of %d bytes, %d are in blocks, want %d", len(s.Text()), len(text), s.Reach(), len(raw))
		}
		for _, p := range s.Remaining() {
			take(p, true)
		}
		if left := text[len(raw):]; !strings.HasPrefix(text, raw) || strings.TrimSpace(left) != "" {
			t.Errorf("joined %q, %q is left", raw, left)
		}
		if t.Failed() {
			t.Fatalf("seed %d, %+v, %d, text %q", seed, b, least, text)
		}
	}
	t.Logf("%d blocks, %d of them after a pause", blocks, idle)
}
