// Package chunk cuts a text into messages that a channel takes.
//
// A cut is where a reader expects one: after a paragraph, else after a line, a sentence,
// a word, else between two characters. A block of code between fences stays intact: where
// it does not fit, the piece ends with a closing fence and the next begins with the same
// opening one. A block in a quote keeps the marks of the quote. A piece that begins in an item
// of a list is without the indent of the item, which would make indented code of it.
//
// It promises: no piece is longer than Max characters, or than Max of the units in which a
// channel counts them; in each piece of a text that is
// cut, fences come in pairs; no character is split, and no letter from its accents where
// they fit. The parts of the text that the pieces hold ([Piece.Raw]) are, joined, the text
// byte for byte; what they show is that without the white space at its ends and the indent
// of a list, and with the added fences. The same text and bounds give the same pieces, and those after a cut
// depend only on its position, so a caller that continues a message needs only that. [Stream]
// promises the same of a text that is still being written.
//
// It sends nothing.
package chunk

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a piece, in characters (code points) or other units.
type Bounds struct {
	// Max is the most; 0 cuts nothing.
	Max int
	// Min is how much a piece should hold before a cut is looked for; 0: half of Max.
	Min int
	// Units is what a character counts, 1 or 2; nil: 1.
	Units func(rune) int
}

// Least is the smallest Max: below it a fence and its pair do not fit.
const Least = 64

// Piece is one message of a text.
type Piece struct {
	// Text is what is sent: it never is blank.
	Text string
	// Raw is the part of the text that it holds, with the white space around it.
	Raw string
	// Reach is where Raw ends in the text, in bytes.
	Reach int
}

// Split cuts a text into pieces. A text without anything to see has none.
func Split(text string, b Bounds) []Piece { return From(text, 0, b) }

// Closed is a text with the block of code closed that is open at its end, so that what is added is not in it.
func Closed(text string) string {
	if tail := (fence{}).after(text).closing(); tail != "" {
		return strings.TrimRight(text, "\n") + "\n" + tail
	}
	return text
}

// From returns the pieces behind the one that reached a place.
func From(text string, reach int, b Bounds) (out []Piece) {
	b = b.withDefaults()
	s := scan{text: text, bounds: b}
	s.skip(min(max(reach, 0), len(text)))
	blank := "" // white space before the first piece
	for s.at < len(text) {
		switch p := s.next(); {
		case strings.TrimSpace(p.Raw) != "":
			p.Raw, blank = blank+p.Raw, ""
			out = append(out, p)
		case len(out) > 0:
			last := &out[len(out)-1]
			last.Raw, last.Reach = last.Raw+p.Raw, p.Reach
		default:
			blank += p.Raw
		}
	}
	return out
}

func (b Bounds) withDefaults() Bounds {
	if b.Max > 0 {
		b.Max = max(b.Max, Least)
	}
	if b.Min <= 0 || b.Min > b.Max {
		b.Min = b.Max / 2
	}
	return b
}

// scan is a walk over the text, piece by piece.
type scan struct {
	text   string
	bounds Bounds
	at     int
	fence  fence // open at at, as whoever read only text[:at] would say
	line   int   // where the line of at begins
	before fence // open there
	grows  bool  // more is written: no piece is the whole text
}

// skip walks to a place, minding the fences.
func (s *scan) skip(to int) {
	s.at = to
	begin := strings.LastIndexByte(s.text[:to], '\n') + 1
	s.before, s.line = s.before.after(s.text[s.line:begin]), begin
	s.fence = s.before.after(s.text[begin:to])
}

// next takes a piece.
func (s *scan) next() Piece {
	rest := s.text[s.at:]
	if s.bounds.Max > 0 {
		return s.take(s.end(rest, s.fence.opening()))
	}
	return s.take(len(rest))
}

// take makes a piece of the next bytes.
func (s *scan) take(end int) Piece {
	open := s.fence
	head := open.opening()
	raw := s.text[s.at : s.at+end]
	s.skip(s.at + end)
	tail, text := open.tail(raw), raw
	if head == "" {
		text = trimStart(text)
		open.cut = open.cut && len(text) == len(raw)
	}
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	if tail != "" && (s.grows || len(raw) < len(s.text)) {
		text += "\n" + tail
	}
	return Piece{Text: head + open.unlisted(text), Raw: raw, Reach: s.at}
}

// end is where the piece that begins rest ends, in bytes.
func (s *scan) end(rest, head string) int {
	room := s.bounds.Max - s.bounds.size(head)
	if s.bounds.size(rest) <= room && (s.at == 0 || s.fits(rest, room)) {
		return len(rest)
	}
	// What the piece may hold at most, if it ends inside of a fence and outside.
	whole := s.bounds.prefix(rest, room)
	least := len(s.bounds.prefix(rest, min(s.bounds.Min, room)))
	for _, cut := range cuts {
		for at := len(whole); at > 0; {
			at = cut(whole[:at])
			if at < least && at < len(whole) || at <= 0 {
				break
			}
			if s.fits(rest[:at], room) && s.sound(rest, at) {
				return at
			}
			at--
		}
	}
	for _, good := range []bool{true, false} { // hard
		for at := len(whole); at > 0; at = previous(rest, at) {
			if s.fits(rest[:at], room) && (!good || s.sound(rest, at) && !joined(rest, at)) {
				return at
			}
		}
	}
	_, one := utf8.DecodeRuneInString(rest)
	return one
}

// fits reports whether the fence that has to close a piece fits into it.
func (s *scan) fits(raw string, room int) bool {
	tail := s.fence.tail(raw)
	if tail == "" {
		return true
	}
	return s.bounds.size(strings.TrimRight(raw, "\n"))+1+s.bounds.size(tail) <= room
}

// sound reports whether a cut leaves fences as they are: it tears no line that is one,
// makes none of the rest of a line, and does not part a fence from its code.
func (s *scan) sound(rest string, at int) bool {
	if at == len(rest) {
		return true
	}
	begin := strings.LastIndexByte(rest[:at-1], '\n') + 1
	first, _, _ := strings.Cut(rest[begin:], "\n")
	second, _, _ := strings.Cut(rest[at:], "\n")
	if rest[at-1] != '\n' {
		return !mayFence(first) && !mayFence(second)
	}
	inside := s.fence.after(rest[:at]).mark != ""
	return !inside || !mayFence(first) && !mayFence(second)
}

// prefix is the beginning of s in at most n units.
func (b Bounds) prefix(s string, n int) string {
	for i, r := range s {
		if n -= b.of(r); n < 0 {
			return s[:i]
		}
	}
	return s
}

// size is the length of s in units.
func (b Bounds) size(s string) (n int) {
	if b.Units == nil {
		return utf8.RuneCountInString(s)
	}
	for _, r := range s {
		n += b.of(r)
	}
	return n
}

func (b Bounds) of(r rune) int {
	if b.Units == nil {
		return 1
	}
	return b.Units(r)
}

// trimStart takes empty lines off the front: the indent of the first line is its own.
func trimStart(s string) string {
	for {
		line, rest, ok := strings.Cut(s, "\n")
		if !ok || strings.TrimSpace(line) != "" {
			return s
		}
		s = rest
	}
}
