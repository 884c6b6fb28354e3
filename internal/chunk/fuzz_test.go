package chunk_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/chunk"
)

// S10: the pieces of any text, joined, are the text; none is longer than it may be,
// blank, or torn within a character; and whoever goes on behind one gets the rest.
func FuzzSplit(f *testing.F) {
	f.Add("one two three", 64, 0)
	f.Add("```go\n"+strings.Repeat("x := 1\n", 30)+"```\nend", 80, 10)
	f.Add(strings.Repeat("e\u0301👩\u200d👧🇩🇪", 40), 1, 1)
	f.Add("~~~~ a\n\xff\xfe\n````\n"+strings.Repeat(" \n", 90), 65, 64)
	f.Fuzz(func(t *testing.T, text string, most, least int) {
		if most < 1 || most > 10_000 || len(text) > 20_000 {
			return
		}
		b := chunk.Bounds{Max: most, Min: least}
		list := chunk.Split(text, b)
		var raw strings.Builder
		for i, p := range list {
			raw.WriteString(p.Raw)
			switch n := utf8.RuneCountInString(p.Text); {
			case n > max(most, chunk.Least):
				t.Errorf("piece %d has %d characters of %d: %q", i, n, most, text)
			case strings.TrimSpace(p.Text) == "":
				t.Errorf("piece %d of %q is blank", i, text)
			case utf8.ValidString(text) && !utf8.ValidString(p.Text):
				t.Errorf("piece %d of %q tears a character", i, text)
			case p.Reach != raw.Len():
				t.Errorf("piece %d of %q reaches %d of %d", i, text, p.Reach, raw.Len())
			}
		}
		if strings.TrimSpace(text) != "" && raw.String() != text {
			t.Errorf("joined %q, not %q", raw.String(), text)
		}
		if strings.TrimSpace(text) == "" && len(list) > 0 {
			t.Errorf("%q has pieces", text)
		}
		if len(list) == 0 {
			return
		}
		rest := chunk.From(text, list[0].Reach, b)
		if len(rest) != len(list)-1 {
			t.Fatalf("%d pieces behind the first of %d: %q", len(rest), len(list), text)
		}
		for i, p := range rest {
			if p.Text != list[i+1].Text || p.Reach != list[i+1].Reach {
				t.Errorf("behind the first: %+v, not %+v", p, list[i+1])
			}
		}
	})
}
