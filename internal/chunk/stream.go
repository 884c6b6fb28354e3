package chunk

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Break is the least break point at which a piece of a [Stream] ends before it is full.
type Break int

// The break points; each includes those above it.
const (
	Paragraph Break = iota
	Line
	Sentence
)

// ahead is how much of a text must be written behind a cut, in characters: what comes next
// decides whether the cut tears a fence or a character that is shown as one.
const ahead = 16

// Stream cuts a text that is still being written. Its pieces are those that a reader can be
// given now; they keep the promises of [Split]: joined they are the text, none is longer than
// the bound, and each has its fences in pairs. See [NewStream].
type Stream struct {
	scan
	written strings.Builder
	least   Break
}

// NewStream returns a stream whose text begins with what has been cut before. Bounds need a Max.
func NewStream(before string, b Bounds, least Break) *Stream {
	s := &Stream{least: least}
	s.bounds, s.grows = b.withDefaults(), true
	s.Add(before)
	s.skip(len(before))
	return s
}

// Add writes more of the text.
func (s *Stream) Add(text string) {
	s.written.WriteString(text)
	s.text = s.written.String()
}

// Text is all that was written.
func (s *Stream) Text() string { return s.text }

// Reach is how much of the text is in pieces, in bytes.
func (s *Stream) Reach() int { return s.at }

// Next returns the next piece that is complete: it ends at the first break point behind Min, or
// is full. It returns false when more has to be written first.
func (s *Stream) Next() (Piece, bool) {
	return s.nonblank(func(rest string, room int) int {
		if at := s.early(rest, room); at > 0 {
			return at
		}
		if s.bounds.size(rest) > s.bounds.Max+ahead {
			return s.end(rest, s.fence.opening())
		}
		return 0
	})
}

// Idle returns a piece of what was written and is in none, without the word, and the line of a
// fence, that may not be complete. It returns false when that is nothing.
func (s *Stream) Idle() (Piece, bool) {
	return s.nonblank(func(rest string, room int) int {
		at := s.settled(rest)
		switch {
		case strings.TrimSpace(rest[:at]) == "":
			return 0
		case s.bounds.size(rest[:at]) > room:
			return s.end(rest, s.fence.opening())
		case !s.fits(rest[:at], room):
			return 0
		}
		return at
	})
}

// Remaining returns the pieces of what is left, once all is written.
func (s *Stream) Remaining() []Piece { return From(s.text, s.at, s.bounds) }

// nonblank takes pieces at the ends that cut finds, until one has something to see, which then
// begins with the blank ones. An end of 0 is none: nothing is taken then.
func (s *Stream) nonblank(cut func(rest string, room int) int) (Piece, bool) {
	before, blank := s.scan, ""
	for {
		rest := s.text[s.at:]
		at := cut(rest, s.bounds.Max-s.bounds.size(s.fence.opening()))
		if at == 0 {
			s.scan = before
			return Piece{}, false
		}
		p := s.take(at)
		if strings.TrimSpace(p.Raw) == "" {
			blank += p.Raw
			continue
		}
		p.Raw = blank + p.Raw
		return p, true
	}
}

// early is the first break point behind Min at which a piece can end outside of a block of
// code, in bytes; 0: there is none.
func (s *Stream) early(rest string, room int) int {
	if s.bounds.size(rest) < s.bounds.Min {
		return 0
	}
	whole := len(s.bounds.prefix(rest, room))
	for from := len(s.bounds.prefix(rest, s.bounds.Min)); ; {
		at := s.least.next(rest, from)
		if at == 0 || at > whole {
			return 0
		}
		if behind := rest[at:]; rest[at-1] != '\n' && len(behind) < ahead && !strings.Contains(behind, "\n") {
			return 0
		}
		if strings.TrimSpace(rest[:at]) != "" && s.fence.tail(rest[:at]) == "" && s.sound(rest, at) {
			return at
		}
		from = at + 1
	}
}

// next is the first break point from a place on; 0: there is none.
func (b Break) next(text string, from int) (at int) {
	before := rune(0)
	for i, r := range text {
		end := i + utf8.RuneLen(r)
		switch {
		case end < from:
		case r == '\n' && (b >= Line || before == '\n'):
			return end
		case b >= Sentence && (strings.ContainsRune("。！？", r) || unicode.IsSpace(r) && strings.ContainsRune(".!?…", before)):
			return end
		}
		before = r
	}
	return 0
}

// settled is how much of a text what is written next cannot change, in bytes.
func (s *Stream) settled(rest string) int {
	begin := strings.LastIndexByte(rest, '\n') + 1
	line := strings.TrimLeft(rest[begin:], containers)
	if s.fence.after(rest[:begin]).mark != "" {
		if before := strings.LastIndexByte(rest[:max(begin-1, 0)], '\n') + 1; mayFence(rest[before:begin]) {
			return before // a fence stays with its code
		}
		return begin
	}
	if line == "" || line[0] == '`' || line[0] == '~' {
		return begin
	}
	if last, _ := utf8.DecodeLastRuneInString(rest); !partOfWord(last) {
		return len(rest)
	}
	if at := word(rest); at > begin && s.sound(rest, at) {
		return at
	}
	return begin
}

// partOfWord reports whether a character at the end of a text may be the beginning of a word.
// In scripts without spaces each is a word.
func partOfWord(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r)) && !unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
}
