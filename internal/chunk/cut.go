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

// fence is an open block of code; the zero value is none.
type fence struct {
	mark string // its backticks or tildes
	info string // what stands behind them
}

// maxInfo is how much of the language of a block is repeated, in characters.
const maxInfo = 16

// after is the fence that is open behind a text.
func (f fence) after(text string) fence {
	for l := range strings.Lines(text) {
		mark, info := fenceOf(strings.TrimRight(l, "\r\n"))
		switch {
		case mark == "":
		case f.mark == "":
			f = fence{mark, info}
		case mark[0] == f.mark[0] && len(mark) >= len(f.mark) && info == "":
			f = fence{}
		}
	}
	return f
}

// opening opens the block again, with the name of its language; closing closes it.
func (f fence) opening() string {
	if f.mark == "" {
		return ""
	}
	language, _, _ := strings.Cut(f.info, " ")
	return f.mark + Bounds{}.prefix(language, maxInfo) + "\n"
}

func (f fence) closing() string { return f.mark }

// fenceOf reads a line; mark is empty unless it is a fence. A mark of more than
// eight characters is an ornament.
func fenceOf(l string) (mark, info string) {
	body := strings.TrimLeft(l, " ")
	if len(l)-len(body) > 3 || body == "" {
		return "", ""
	}
	c := body[0]
	n := len(body) - len(strings.TrimLeft(body, string(rune(c))))
	info = strings.TrimSpace(body[n:])
	if c != '`' && c != '~' || n < 3 || n > 8 || c == '`' && strings.Contains(info, "`") {
		return "", ""
	}
	return body[:n], info
}

// mayFence reports whether a line, or a piece of it, could be read as a fence.
func mayFence(l string) bool {
	body := strings.TrimLeft(l, " ")
	return strings.HasPrefix(body, "```") || strings.HasPrefix(body, "~~~")
}
