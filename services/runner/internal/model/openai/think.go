package openai

import "strings"

// tags are the words that models use; all are matched in any case.
var tags = []string{"think", "thinking", "thought", "reasoning", "reflection", "antthinking"}

const white = " \t\r\n"

// thinkSplitter separates the thinking of a model from its text where an endpoint
// sends both in one: <think>...</think> at the beginning of the answer, as open
// models write it. The zero value is ready for one answer.
//
// However the answer is cut into pieces, text and thinking are the same, and each
// is handed on as soon as it is certain; only the tags and the white space around
// them are lost. Tags count only before the first word of the text: an answer
// about <think> keeps the word. A tag that is never closed is thinking to the end.
// Thinking without an opening tag is not found: until the closing tag comes it
// cannot be told from text.
//
//	begin --<tag>--> thinking --</tag>--> begin
//	begin --anything else--> text, to the end
type thinkSplitter struct {
	tag  string // of the thinking under way; empty outside
	text bool   // the text has begun
	// thought: thinking has ended, so that white space before the text is the
	// tag's and not the text's.
	thought bool
	held    string // what may be a tag, or white space before one
}

// Add takes a piece of the answer and gives what is certain of text and
// thinking.
func (s *thinkSplitter) Add(piece string) (text, thinking string) {
	if s.text {
		return piece, ""
	}
	s.held += piece
	for {
		t, more := s.step(&thinking)
		text += t
		if !more {
			return text, thinking
		}
	}
}

// End returns what was held back.
func (s *thinkSplitter) End() (text, thinking string) {
	held := s.held
	s.held = ""
	switch {
	case s.tag != "":
		return "", held
	case s.thought:
		return strings.TrimLeft(held, white), ""
	}
	return held, ""
}

// step reads the beginning of what is held; more: there may be more to read.
func (s *thinkSplitter) step(thinking *string) (text string, more bool) {
	if s.tag != "" {
		return "", s.think(thinking)
	}
	rest := strings.TrimLeft(s.held, white)
	tag, n, maybe := opening(rest)
	switch {
	case tag != "":
		s.tag, s.held = tag, rest[n:]
		return "", true
	case maybe:
		return "", false
	}
	s.text = true
	text, s.held = s.held, ""
	if s.thought {
		text = rest
	}
	return text, false
}

// think hands thinking on, up to the closing tag or to what may become one.
func (s *thinkSplitter) think(thinking *string) bool {
	closing := "</" + s.tag + ">"
	lower := asciiLower(s.held)
	if i := strings.Index(lower, closing); i >= 0 {
		*thinking += s.held[:i]
		s.held, s.tag, s.thought = s.held[i+len(closing):], "", true
		return true
	}
	keep := 0
	for n := min(len(closing)-1, len(lower)); n > 0; n-- {
		if strings.HasSuffix(lower, closing[:n]) {
			keep = n
			break
		}
	}
	*thinking += s.held[:len(s.held)-keep]
	s.held = s.held[len(s.held)-keep:]
	return false
}

// opening finds an opening tag at the beginning of s, and its length; maybe: s
// is too short to decide.
func opening(s string) (tag string, n int, maybe bool) {
	lower := asciiLower(s)
	for _, t := range tags {
		open := "<" + t + ">"
		if strings.HasPrefix(lower, open) {
			return t, len(open), false
		}
		maybe = maybe || strings.HasPrefix(open, lower)
	}
	return "", 0, maybe
}

// asciiLower keeps every byte at its place, which strings.ToLower does not.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
