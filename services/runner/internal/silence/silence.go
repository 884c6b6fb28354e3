// Package silence recognizes the word with which a model answers nothing.
//
// A line that holds only the word is no part of an answer; an answer of which nothing is
// left is silent. A text that comes in pieces is held back as long as it may become the
// word, so that no reader sees a part of it.
//
// It promises that the pieces together are what [Text] makes of the complete text. It does
// not decide what happens to a silent answer.
package silence

import "strings"

// Word is the token; the prompt names it.
const Word = "NO_REPLY"

// longest is how long a line may be and still be the word, blanks included: what
// is held back stays small.
const longest = 64

// Text is an answer without the word.
func Text(s string) string {
	if !strings.Contains(s, Word) {
		return s
	}
	var f Filter
	return f.Add(s) + f.Flush()
}

// Behind is the part of an answer that follows text, which may end within a line, without the word.
func Behind(text, rest string) string {
	f := Filter{open: text != "" && !strings.HasSuffix(text, "\n")}
	return f.Add(rest) + f.Flush()
}

// Filter takes the word out of an answer that comes in pieces. The zero value is
// at the beginning of one.
type Filter struct {
	held string // the line so far, while it may be the word
	open bool   // the line is something else
}

// Add takes a piece and returns what may be shown.
func (f *Filter) Add(piece string) string {
	var out strings.Builder
	for len(piece) > 0 {
		line, rest, ends := strings.Cut(piece, "\n")
		piece = rest
		if !f.open {
			f.held += line
			line = ""
			if word := strings.TrimSpace(f.held); ends && word == Word && len(f.held) <= longest {
				f.held = ""
				continue
			} else if ends || !strings.HasPrefix(Word, word) || len(f.held) > longest {
				line, f.held, f.open = f.held, "", true
			}
		}
		out.WriteString(line)
		if ends {
			out.WriteByte('\n')
			f.open = false
		}
	}
	return out.String()
}

// Flush is what was held back and is not the word, at the end.
func (f *Filter) Flush() string {
	rest := f.held
	f.held, f.open = "", false
	if strings.TrimSpace(rest) == Word {
		return ""
	}
	return rest
}
