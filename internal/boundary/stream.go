package boundary

import (
	"strings"
	"unicode/utf8"
)

// Stream makes a text valid that arrives in pieces. What Add and End return is together
// what [Text] makes of the complete text without a limit: a character that is cut between
// two pieces is kept, and a run of invalid bytes becomes one U+FFFD however it is cut.
// The zero value is ready for one text.
type Stream struct {
	rest    string // the beginning of a character whose end is still to come
	invalid bool   // the text so far ends in invalid bytes
	change  Change
}

// Add takes a piece and returns what is certain of the text.
func (s *Stream) Add(piece string) string {
	if piece == "" {
		return ""
	}
	if s.rest == "" && !s.invalid && utf8.ValidString(piece) {
		return piece
	}
	text := s.rest + piece
	s.rest = ""
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) {
				text, s.rest = text[:len(text)-n], strings.Clone(last)
			}
			break
		}
	}
	return s.valid(text)
}

// End returns what was held back.
func (s *Stream) End() string {
	text := s.rest
	s.rest = ""
	return s.valid(text)
}

// Change is how what was returned differs from what was added.
func (s *Stream) Change() Change { return s.change }

func (s *Stream) valid(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		invalid := r == utf8.RuneError && n == 1
		switch {
		case !invalid:
			b.WriteString(text[:n])
		case !s.invalid:
			b.WriteRune(utf8.RuneError)
			s.change.Replaced++
		}
		s.invalid = invalid
		text = text[n:]
	}
	return b.String()
}
