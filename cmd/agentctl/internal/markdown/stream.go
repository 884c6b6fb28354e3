package markdown

import (
	"regexp"
	"strings"
	"sync"
)

// Bounds of what is laid out again at each look.
const (
	maxOpen = 4 << 10 // bytes of a line without an end
	maxRows = 100     // of a table whose columns have no width yet
)

// Style is how a text is laid out.
type Style struct {
	Color bool
	Light bool   // the colors are for a light background
	Apart bool   // the terminal counts columns by characters: joined emoji are shown as their parts ([Apart])
	Plain bool   // no marks: the text is shown as it is
	Faint bool   // with Plain: and not as clearly
	Lead  string // stands before the first line, styled already
	Edge  string // stands before every line
}

// Stream is a text that grows. It is not safe for use by more than one goroutine.
type Stream struct {
	style Style
	width int
	text  strings.Builder // everything, to be laid out anew for another width

	lines []string // of what has its end
	open  string   // the line without an end
	mid   bool     // the beginning of open was cut off and laid out
	fence string   // the mark that ends the code; "" outside of code
	shift int      // blanks before that mark, and before each line of the code
	table table    // begun
}

// New begins an empty text.
func New(style Style) *Stream { return &Stream{style: style, width: 80} }

// Style is how the text is laid out.
func (s *Stream) Style() Style { return s.style }

// Text is everything written so far.
func (s *Stream) Text() string { return s.text.String() }

// Write adds a piece.
func (s *Stream) Write(piece string) {
	s.text.WriteString(piece)
	s.add(piece)
}

func (s *Stream) add(piece string) {
	for {
		line, rest, whole := strings.Cut(piece, "\n")
		s.open += line
		if s.style.Apart {
			s.open = Apart(s.open)
		}
		for len(s.open) > maxOpen {
			cut := strings.LastIndexByte(s.open[:maxOpen], ' ') + 1
			if cut == 0 {
				cut = maxOpen
				for cut > 0 && s.open[cut]&0xC0 == 0x80 { // not within a character
					cut--
				}
			}
			s.end(s.open[:cut])
			s.open, s.mid = s.open[cut:], true
		}
		if !whole {
			return
		}
		s.end(s.open)
		s.open, s.mid = "", false
		piece = rest
	}
}

// Lines are what the text looks like at a width: the lines that stay as they are,
// and those that the next piece may change. The caller changes neither.
func (s *Stream) Lines(width int) (kept, open []string) {
	width = max(width, 10)
	if width != s.width {
		text := s.text.String()
		*s = Stream{style: s.style, width: width}
		s.Write(text)
	}
	open, row := s.begun()
	if s.open != "" && !row {
		open = append(open, s.line(s.open, len(s.lines)+len(open) == 0)...)
	}
	return s.lines, open
}

// compiled makes a pattern at its first use: agentctl starts for each command, and few
// of them lay out text.
func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

var (
	fenceMark = compiled("^( *)(```+|~~~+)[^`]*$")
	heading   = compiled(`^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$`)
	rule      = compiled(`^ {0,3}((\*\s*){3,}|(-\s*){3,}|(_\s*){3,})$`)
	quote     = compiled(`^ {0,3}((?:>\s?)+)(.*)$`)
	item      = compiled(`^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$`)
	task      = compiled(`^\[([ xX])\]\s+`)
)

// end lays out a line that has its end.
func (s *Stream) end(line string) {
	switch {
	case s.style.Plain || s.fence != "":
	case s.mid:
		s.endTable()
	case s.row(line):
		return
	default:
		if m := fenceMark().FindStringSubmatch(line); m != nil {
			s.shift, s.fence = len(m[1]), m[2]
			s.lines = append(s.lines, s.alone()...)
			return
		}
	}
	if s.fence != "" && !s.mid {
		if mark := strings.TrimSpace(line); strings.HasPrefix(mark, s.fence) && strings.Trim(mark, s.fence[:1]) == "" {
			s.fence = ""
			return
		}
	}
	s.lines = append(s.lines, s.line(line, len(s.lines) == 0)...)
}

// alone is the lead on a line of its own, for what does not begin next to it.
func (s *Stream) alone() []string {
	if len(s.lines) > 0 || s.style.Lead == "" {
		return nil
	}
	return []string{s.style.Edge + s.style.Lead}
}

// room is what the edge leaves of a line.
func (s *Stream) room() int { return max(s.width-s.columns(s.style.Edge), 4) }

// line is one line of the text; first tells that it is the first of all.
func (s *Stream) line(line string, first bool) []string {
	lead := ""
	if first {
		lead = s.style.Lead
	}
	room := s.room()
	line = strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), " \r")
	switch {
	case s.style.Plain:
		if s.style.Faint {
			line = faint + line + reset
		}
		return s.edged(s.wrap(lead, "", line, room))
	case s.fence != "":
		for range s.shift {
			line = strings.TrimPrefix(line, " ")
		}
		return s.edged(s.code(lead, line, room, s.paint(cyan, blue)))
	case s.mid:
		return s.edged(s.wrap(lead, "", s.spans(line), room))
	case rule().MatchString(line):
		return s.edged([]string{lead + strings.Repeat("─", max(min(room-s.columns(lead), 40), 1))})
	}
	if m := heading().FindStringSubmatch(line); m != nil {
		return s.edged(s.wrap(lead, "", bold+s.paint(magenta, blue)+s.spans(m[1])+reset, room))
	}
	if m := quote().FindStringSubmatch(line); m != nil {
		bar := strings.Repeat("│ ", min(strings.Count(m[1], ">"), 4))
		return s.edged(s.wrap(lead+bar, bar, faint+s.spans(m[2])+reset, room))
	}
	if m := item().FindStringSubmatch(line); m != nil {
		return s.edged(s.item(lead, m, room))
	}
	return s.edged(s.wrap(lead, "", s.spans(line), room))
}

// item is a list item: what does not fit hangs under its text.
func (s *Stream) item(lead string, m []string, room int) []string {
	indent, mark, text := m[1], m[2], m[3]
	if len(indent) > 16 {
		indent = indent[:16]
	}
	if strings.ContainsAny(mark, "-*+") {
		mark = "•"
		if t := task().FindStringSubmatch(text); t != nil {
			mark, text = map[string]string{" ": "☐"}[t[1]], text[len(t[0]):]
			if mark == "" {
				mark = "☑"
			}
		}
	}
	before := indent + mark + " "
	return s.wrap(lead+before, strings.Repeat(" ", s.columns(before)), s.spans(text), room)
}

func (s *Stream) edged(lines []string) []string {
	if s.style.Edge != "" {
		for i, l := range lines {
			lines[i] = s.style.Edge + l
		}
	}
	return lines
}
