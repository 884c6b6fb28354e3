package chunk

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cuts are the places for a cut, best first: each answers the last one in a text,
// where the piece would end; 0 when there is none.
var cuts = []func(string) int{paragraph, line, sentence, word}

func paragraph(s string) int {
	i := strings.LastIndex(s, "\n\n")
	if i < 0 {
		return 0
	}
	return i + 2
}

func line(s string) int { return strings.LastIndexByte(s, '\n') + 1 }

// sentence ends with a mark and a space; a mark of East Asia needs none.
func sentence(s string) int {
	for i := len(s); i > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		before, _ := utf8.DecodeLastRuneInString(s[:i-size])
		switch {
		case strings.ContainsRune("。！？", r):
			return i
		case unicode.IsSpace(r) && strings.ContainsRune(".!?…", before):
			return i
		}
		i -= size
	}
	return 0
}

func word(s string) int {
	i := strings.LastIndexFunc(s, unicode.IsSpace)
	if i < 0 {
		return 0
	}
	_, size := utf8.DecodeRuneInString(s[i:])
	return i + size
}

// previous is the place one character before another.
func previous(s string, at int) int {
	_, size := utf8.DecodeLastRuneInString(s[:at])
	return at - size
}

// joined reports whether the characters on both sides of a place are shown as one.
func joined(s string, at int) bool {
	if at <= 0 || at >= len(s) {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(s[:at])
	after, _ := utf8.DecodeRuneInString(s[at:])
	switch {
	case before == '\r' && after == '\n', before == joiner, after == joiner:
		return true
	case unicode.Is(unicode.M, after), unicode.Is(unicode.Variation_Selector, after):
		return true
	case after >= 0x1F3FB && after <= 0x1F3FF: // the color of a skin
		return true
	}
	return flag(before) && flag(after) && flags(s[:at])%2 == 1
}

const joiner = '\u200d'

// flag reports whether a character is half of a flag.
func flag(r rune) bool { return r >= 0x1F1E6 && r <= 0x1F1FF }

// flags counts the halves at the end of a text, up to a bound.
func flags(s string) (n int) {
	for n < 64 {
		r, size := utf8.DecodeLastRuneInString(s)
		if !flag(r) {
			break
		}
		n, s = n+1, s[:len(s)-size]
	}
	return n
}

// fence is what is open at a place: a block of code, and the list and the quotes that it may
// stand in. The zero value is none.
type fence struct {
	mark   string // its backticks or tildes; empty: no block of code is open
	info   string // what stands behind them
	lead   string // what stands in front of them: marks of quotes, or the indent of a list
	quotes int    // how many marks of quotes its lines have
	item   int    // the column where the text of a list item begins; 0: there is no list
	cut    bool   // the place is within a line
}

// Bounds of what is repeated of a fence, in characters: twice of each, and a character of two
// units, fit into [Least].
const (
	maxInfo   = 16 // of the language
	maxIndent = 12
	maxQuotes = 4 // with the space behind them
)

// maxOffset is how far a block may be indented in its list or quote: from there on it is
// indented code.
const maxOffset = 3

// after is what is open behind a text.
func (f fence) after(text string) fence {
	for l := range strings.Lines(text) {
		line := strings.TrimRightFunc(l, unicode.IsSpace)
		if f.cut { // the lists and quotes of a line are at its beginning
			if at := spaces(line); at <= maxOffset {
				f = f.toggle(line[at:], "", 0)
			}
		} else {
			f = f.next(line)
		}
		f.cut = !strings.HasSuffix(l, "\n")
	}
	return f
}

// next is what is open behind a complete line.
func (f fence) next(l string) fence {
	first := spaces(l)
	if f.mark == "" && first < len(l) {
		f.item = min(f.item, first)
	}
	at, base, quotes := first, f.item, 0 // base: where the text of the list or the quote begins
	for at < len(l) && l[at] == '>' && at-base <= maxOffset && (f.mark == "" || quotes < f.quotes) {
		quotes, base = quotes+1, at+1
		base += min(spaces(l[base:]), 1)
		at = base + spaces(l[base:])
	}
	if quotes < f.quotes { // the quote has ended, and the block in it
		return fence{item: f.item}.next(l)
	}
	for f.mark == "" && at < len(l) && at-base <= maxOffset {
		n := marker(l[at:])
		if n == 0 {
			break
		}
		if at += n; quotes == 0 {
			f.item, base = at, at
		}
	}
	lead := ""
	switch {
	case at >= len(l), at-base > maxOffset:
		return f
	case quotes > 0:
		if lead = l[first:base] + strings.Repeat(" ", at-base); len(lead) > maxQuotes {
			return f
		}
	case f.item > 0:
		lead = strings.Repeat(" ", min(at, maxIndent))
	}
	return f.toggle(l[at:], lead, quotes)
}

// toggle is what is open behind a line that may be a fence.
func (f fence) toggle(line, lead string, quotes int) fence {
	mark, info := fenceOf(line)
	switch {
	case mark == "":
	case f.mark == "":
		f.mark, f.info, f.lead, f.quotes = mark, info, lead, quotes
	case mark[0] == f.mark[0] && len(mark) >= len(f.mark) && info == "":
		f = fence{item: f.item}
	}
	return f
}

// opening opens the block again, with the name of its language and the marks of its quotes;
// closing closes it.
func (f fence) opening() string {
	if f.mark == "" {
		return ""
	}
	language, _, _ := strings.Cut(f.info, " ")
	head := f.mark + Bounds{}.prefix(language, maxInfo) + "\n"
	switch {
	case f.quotes == 0:
		return head
	case f.cut:
		return f.lead + head + f.lead
	}
	return f.lead + head
}

// tail closes the block that is open behind a text in the eyes of who reads only that: the
// white space at its end, which may end a quote, is not sent.
func (f fence) tail(text string) string {
	return f.after(strings.TrimRightFunc(text, unicode.IsSpace)).closing()
}

func (f fence) closing() string {
	if f.mark == "" {
		return ""
	}
	return f.lead + f.mark
}

// unlisted takes the indent off the text of a list item that began in another piece: without
// the item it could be indented code.
func (f fence) unlisted(text string) string {
	var out strings.Builder
	for n := f.item; n > 0 && text != ""; {
		end := strings.IndexByte(text, '\n') + 1
		if end == 0 {
			end = len(text)
		}
		l := text[:end]
		if !f.cut {
			indent := spaces(l)
			if f.mark == "" && strings.TrimSpace(l) != "" {
				n = min(n, indent)
			}
			l = l[min(n, indent):]
		}
		out.WriteString(l)
		f, text = f.after(text[:end]), text[end:]
		n = min(n, f.item)
	}
	return out.String() + text
}

// spaces counts the spaces at the beginning of a line.
func spaces(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }

// marker is the width of the mark of a list item at the beginning of a line, with the spaces
// behind it; 0: there is none.
func marker(l string) int {
	digits := len(l) - len(strings.TrimLeft(l, "0123456789"))
	ends := ".)"
	if digits == 0 {
		ends = "-+*"
	}
	if digits > 9 || digits == len(l) || !strings.Contains(ends, l[digits:digits+1]) {
		return 0
	}
	n := digits + 1
	switch space := spaces(l[n:]); {
	case n+space == len(l), space > maxOffset+1: // nothing, or indented code, is behind it
		return n + 1
	case space > 0:
		return n + space
	}
	return 0
}

// fenceOf reads a line without its indent; mark is empty unless it is a fence. A mark of more
// than eight characters is an ornament.
func fenceOf(l string) (mark, info string) {
	n := len(l) - len(strings.TrimLeft(l, l[:min(1, len(l))]))
	info = strings.TrimSpace(l[n:])
	if n < 3 || n > 8 || l[0] != '`' && l[0] != '~' || l[0] == '`' && strings.Contains(info, "`") {
		return "", ""
	}
	return l[:n], info
}

// containers are the characters that lists and quotes put in front of a fence.
const containers = " >-+*.)0123456789"

// mayFence reports whether a line, or a piece of it, could be read as a fence.
func mayFence(l string) bool {
	body := strings.TrimLeft(l, containers)
	return strings.HasPrefix(body, "```") || strings.HasPrefix(body, "~~~")
}
