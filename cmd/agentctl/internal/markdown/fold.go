package markdown

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// fold breaks a styled text at blanks and next to wide characters, as Chinese and Japanese
// are broken, and within a word that is wider than a whole line. A look that goes over a
// break ends before it and begins again.
func (s *Stream) fold(text string, width int) []string {
	if s.columns(text) <= width {
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
		cluster, w := ansi.FirstGraphemeCluster(text, s.method())
		text = text[len(cluster):]
		if f.wide+w > width {
			if cluster == " " { // it would only be seen as a gap at the margin
				lines = append(lines, f.cut())
				continue
			}
			if !f.breaksBefore(cluster, w) {
				lines = append(lines, f.breakWord())
			}
			if f.wide+w > width {
				lines = append(lines, f.cut())
			}
		}
		f.put(cluster, w)
	}
	return append(lines, f.line.String())
}

// What does not begin a line, and what does not end one.
const (
	closing = "，。、；：！？）］｝」』】》〉〕…％,.;:!?)]}"
	opening = "（［｛「『【《〈〔"
)

// folding is the line being filled: up to its last place to break, and the word after it.
type folding struct {
	line strings.Builder
	wide int
	last string // the last cluster, when it is wide
	on   string // the looks in force

	end      int // bytes of line before its last place to break; 0: none
	next     int // bytes of line that the next one does not repeat
	nextWide int // the columns of those
	onAtEnd  string
}

// ends are the looks that an escape ends.
var ends = map[string][]string{
	boldOff: {bold, faint}, italicOff: {italic}, underOff: {under}, struckOff: {struck}, colorOff: {magenta, cyan, blue},
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

func (f *folding) put(cluster string, w int) {
	blank := cluster == " " && strings.TrimSpace(f.line.String()) != ""
	if blank || f.breaksBefore(cluster, w) {
		f.end, f.next, f.nextWide, f.onAtEnd = f.line.Len(), f.line.Len(), f.wide, f.on
	}
	f.line.WriteString(cluster)
	f.wide += w
	if blank {
		f.next, f.nextWide = f.line.Len(), f.wide
	}
	if f.last = ""; w > 1 {
		f.last = cluster
	}
}

// breaksBefore reports whether a line may end before a cluster that is no blank.
func (f *folding) breaksBefore(cluster string, w int) bool {
	return f.wide > 0 && (w > 1 || f.last != "") && !strings.Contains(closing, cluster) && (f.last == "" || !strings.Contains(opening, f.last))
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

// breakWord ends the line at its last place to break and takes what is after it along.
func (f *folding) breakWord() string {
	if f.end == 0 {
		return f.cut()
	}
	all := f.line.String()
	out, word, wide, on, last := strings.TrimRight(all[:f.end], " "), all[f.next:], f.wide-f.nextWide, f.on, f.last
	if f.onAtEnd != "" {
		out += reset
	}
	f.begin(f.onAtEnd, word, wide)
	f.on, f.last = on, last
	return out
}

func (f *folding) begin(on, word string, wide int) {
	f.line.Reset()
	f.line.WriteString(on + word)
	f.on, f.wide, f.end, f.last = on, wide, 0, ""
}
