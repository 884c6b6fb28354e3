package toolset

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// MaxSummary bounds the summary of a call, in bytes.
const MaxSummary = 200

// maxSummarized is how much of one argument is read for a summary, in bytes.
const maxSummarized = 4 * MaxSummary

// Summarize returns a Summary of [Spec] that has the values of these arguments, in this order. One that is missing is
// left out.
func Summarize(names ...string) func(json.RawMessage) string {
	return func(args json.RawMessage) string {
		var given map[string]json.RawMessage
		_ = json.Unmarshal(args, &given) // what is not understood has no values
		var words []string
		for _, name := range names {
			var text string
			switch raw := given[name]; {
			case raw == nil || bytes.Equal(raw, []byte("null")):
			case json.Unmarshal(raw, &text) == nil:
				words = append(words, cut(text, maxSummarized))
			default:
				words = append(words, cut(string(raw), maxSummarized))
			}
		}
		return strings.Join(words, " ")
	}
}

// summary is what people read of a call: one line, with the name that policies have for the tool.
func (s Set) summary(c Call) string {
	text := toolpolicy.Canonical(c.Name)
	if n, ok := s.all.index(c.Name); ok && c.Problem == "" {
		if f := s.specs[n].Summary; f != nil {
			text += " " + f(c.Args)
		} else if args := string(c.Args); args != "{}" {
			text += " " + cut(args, maxSummarized)
		}
	}
	return Line(text)
}

// Line is a text in one line of at most MaxSummary bytes, without anything that a terminal acts on.
func Line(s string) string {
	s, _ = boundary.Text(cut(s, maxSummarized), 0)
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(s) <= MaxSummary {
		return s
	}
	const more = "…"
	return cut(s, MaxSummary-len(more)) + more
}
