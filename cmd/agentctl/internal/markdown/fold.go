package markdown

import (
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
)

// fold breaks a styled text at blanks, and within a word that is wider than a
// whole line. A look that goes over a break ends before it and begins again.
func fold(text string, width int) []string {
	if lipgloss.Width(text) <= width {
		return []string{text}
	}
	var lines []string
	var f folding
	for text != "" {
		if text[0] == '\x1b' {
			n := strings.IndexByte(text, 'm') + 1
			f.look(text[:n])
			text = text[n:]
			continue
		}
		_, n := utf8.DecodeRuneInString(text)
		w := lipgloss.Width(text[:n])
		for n < len(text) { // marks without a width belong to what is before them
			_, next := utf8.DecodeRuneInString(text[n:])
			if text[n] == '\x1b' || text[n] < 0x80 || lipgloss.Width(text[n:n+next]) > 0 {
				break
			}
			n += next
		}
		if f.wide+w > width {
			if text[:n] == " " { // it would only be seen as a gap at the margin
				lines = append(lines, f.cut())
				text = text[n:]
				continue
			}
			lines = append(lines, f.breakWord())
			if f.wide+w > width {
				lines = append(lines, f.cut())
			}
		}
		f.put(text[:n], w)
		text = text[n:]
	}
	return append(lines, f.line.String())
}

// folding is the line being filled: up to its last blank, and the word after it.
type folding struct {
	line strings.Builder
	wide int
	on   string // the looks in force

	blank     int // bytes of line before its last blank; 0: none
	blankWide int // columns up to and with that blank
	onAtBlank string
}

// ends are the looks that an escape ends.
var ends = map[string][]string{
	boldOff: {bold, faint}, italicOff: {italic}, underOff: {under}, struckOff: {struck}, colorOff: {colorHead, colorCode, colorLink},
}

func (f *folding) look(escape string) {
	switch over, ok := ends[escape]; {
	case escape == reset:
		f.on = ""
	case ok:
		for _, look := range over {
			f.on = strings.ReplaceAll(f.on, look, "")
		}
	default:
		f.on += escape
	}
	f.line.WriteString(escape)
}

func (f *folding) put(s string, w int) {
	if s == " " && strings.TrimSpace(f.line.String()) != "" {
		f.blank, f.blankWide, f.onAtBlank = f.line.Len(), f.wide+w, f.on
	}
	f.line.WriteString(s)
	f.wide += w
}

// cut ends the line here.
func (f *folding) cut() string {
	out := f.line.String()
	if f.on != "" {
		out += reset
	}
	f.begin(f.on, "", 0)
	return strings.TrimRight(out, " ")
}

// breakWord ends the line at its last blank and takes the word after it along.
func (f *folding) breakWord() string {
	if f.blank == 0 {
		return f.cut()
	}
	all := f.line.String()
	out, word, wide, on := all[:f.blank], all[f.blank+1:], f.wide-f.blankWide, f.on
	if f.onAtBlank != "" {
		out += reset
	}
	f.begin(f.onAtBlank, word, wide)
	f.on = on
	return out
}

func (f *folding) begin(on, word string, wide int) {
	f.line.Reset()
	f.line.WriteString(on + word)
	f.on, f.wide, f.blank, f.blankWide = on, wide, 0, 0
}
