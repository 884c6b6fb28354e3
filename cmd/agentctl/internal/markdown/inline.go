package markdown

import (
	"html"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Escapes for looks. What has no colour in it is used without colours too.
const (
	reset  = "\x1b[0m"
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	italic = "\x1b[3m"
	under  = "\x1b[4m"
	struck = "\x1b[9m"

	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
	blue    = "\x1b[34m"

	// off again, one by one, so that a look within another ends alone
	boldOff, italicOff, underOff, struckOff, colorOff = "\x1b[22m", "\x1b[23m", "\x1b[24m", "\x1b[29m", "\x1b[39m"
)

// paint begins a color: one of two, because blue cannot be read on black, and magenta and
// cyan, which many terminals make brighter where they are bold, cannot be read on white.
func (s *Stream) paint(dark, light string) string {
	switch {
	case !s.style.Color:
		return ""
	case s.style.Light:
		return light
	}
	return dark
}

func (s *Stream) unpaint() string { return s.paint(colorOff, colorOff) }

// far is how far away the end of a mark is looked for, in bytes.
const far = 1000

// marks are what spans looks at.
const marks = "*_`~[\\&"

var link = compiled(`^\[([^\[\]]{1,300})\]\(([^()\s]{1,500})\)`)

// spans replaces the marks within a line by looks.
func (s *Stream) spans(text string) string {
	if !strings.ContainsAny(text, marks) {
		return text
	}
	var b strings.Builder
	before := ' '
	for text != "" {
		out, n := s.span(text, before)
		b.WriteString(out)
		before, _ = utf8.DecodeLastRuneInString(text[:n])
		text = text[n:]
	}
	return b.String()
}

// span is what the text begins with, and how many bytes of it that takes.
func (s *Stream) span(text string, before rune) (string, int) {
	switch text[0] {
	case '\\':
		if len(text) > 1 && strings.IndexByte("\\`*_{}[]()#+-.!~|>", text[1]) >= 0 {
			return text[1:2], 2
		}
	case '`':
		n := len(text) - len(strings.TrimLeft(text, "`"))
		if at := find(text[n:], text[:n]); at > 0 {
			return s.paint(cyan, blue) + strings.TrimSpace(text[n:n+at]) + s.unpaint(), n + at + n
		}
		return text[:n], n
	case '[':
		if m := link().FindStringSubmatch(text); m != nil {
			out := under + s.paint(cyan, blue) + s.spans(m[1]) + s.unpaint() + underOff
			if m[1] != m[2] {
				out += " (" + m[2] + ")"
			}
			return out, len(m[0])
		}
	case '&':
		if out, n := entity(text); n > 0 {
			return out, n
		}
	case '*', '_', '~':
		for _, mark := range []struct{ mark, on, off string }{
			{"**", bold, boldOff}, {"__", bold, boldOff}, {"~~", struck, struckOff}, {"*", italic, italicOff}, {"_", italic, italicOff},
		} {
			if inner, ok := within(text, mark.mark, before); ok {
				return mark.on + s.spans(inner) + mark.off, len(inner) + 2*len(mark.mark)
			}
		}
	}
	n := 1
	if text[0] == '*' || text[0] == '_' || text[0] == '~' {
		n = len(text) - len(strings.TrimLeft(text, text[:1])) // a run of them is not looked at twice
	} else if next := strings.IndexAny(text[1:], marks); next >= 0 {
		n += next
	} else {
		n = len(text)
	}
	return text[:n], n
}

// within is the text between a mark at the beginning and its like.
func within(text, mark string, before rune) (string, bool) {
	if !strings.HasPrefix(text, mark) || mark[0] == '_' && wordy(before) {
		return "", false
	}
	rest := text[len(mark):]
	next, _ := utf8.DecodeRuneInString(rest)
	if rest == "" || unicode.IsSpace(next) || strings.HasPrefix(rest, mark[:1]) || mark == "*" && multiplies(before, next) {
		return "", false
	}
	for from := 0; ; {
		at := find(rest[from:], mark)
		if at < 0 {
			return "", false
		}
		at += from
		last, _ := utf8.DecodeLastRuneInString(rest[:at])
		next, _ := utf8.DecodeRuneInString(rest[at+len(mark):])
		switch {
		case at == 0 || unicode.IsSpace(last) || mark[0] == '_' && wordy(next), mark == "*" && unicode.IsDigit(last) && unicode.IsDigit(next):
			from = at + len(mark)
		case len(mark) == 1 && strings.HasPrefix(rest[at:], mark+mark): // a longer mark inside
			from = at + 2
		default:
			return rest[:at], true
		}
		if from > len(rest) || from > far {
			return "", false
		}
	}
}

// multiplies reports whether a star between two characters is one of 2*3*4 or a*b*c: no
// emphasis begins there. What is not written with Latin letters has no blanks around it.
func multiplies(before, next rune) bool {
	factor := func(r rune) bool { return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) }
	return (factor(before) || before == ')') && (factor(next) || next == '(')
}

var named = compiled(`^&(#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});`)

// entity is the character that the text begins with the name or the number of. One that
// would not be seen stays as it is: the terminal gets no control characters from it.
func entity(text string) (string, int) {
	name := named().FindString(text)
	out := html.UnescapeString(name)
	if strings.HasSuffix(out, ";") && out != ";" || strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return "", 0
	}
	return out, len(name)
}

func find(text, mark string) int { return strings.Index(text[:min(len(text), far)], mark) }

func wordy(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// wrap breaks a text into lines of at most room columns. first stands before the
// first of them, rest before the others.
func (s *Stream) wrap(first, rest, text string, room int) []string {
	inner := room - max(s.columns(first), s.columns(rest))
	if inner < 8 { // no room beside what stands before it
		first, rest, inner = "", "", room
	}
	lines := s.fold(text, inner)
	for i, l := range lines {
		if i == 0 {
			lines[i] = first + l
		} else {
			lines[i] = rest + l
		}
	}
	return lines
}

// code is a line of code: broken where the room ends, not between words.
func (s *Stream) code(lead, line string, room int, color string) []string {
	inner := max(room-2-s.columns(lead), 4)
	var lines []string
	for {
		n, wide := 0, 0
		for n < len(line) {
			cluster, w := ansi.FirstGraphemeCluster(line[n:], s.method())
			if wide+w > inner && n > 0 {
				break
			}
			wide += w
			n += len(cluster)
		}
		part := line[:n]
		if color != "" && part != "" {
			part = color + part + reset
		}
		lines = append(lines, lead+"  "+part)
		if line = line[n:]; line == "" {
			return lines
		}
		lead, inner = "", max(room-2, 4)
	}
}
