package markup

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// style is how a run is shown. Code has no other style.
type style struct {
	bold, italic, strike, code, pre, quote bool
	to, language                           string
	block                                  int // of pre: which one, so that two never become one
}

// run is a piece of the text as it is read, in one style.
type run struct {
	text string
	style
}

// layout returns a text as lines: it has no white space at its ends, and no empty runs.
func layout(blocks []*node) []run {
	var w writer
	w.blocks(blocks, style{}, "", 2)
	return trim(w.runs)
}

// writer puts lines together.
type writer struct {
	runs   []run
	breaks int    // line breaks that come before the next text
	indent string // of the lines
	pres   int
}

// blocks writes blocks with so many line breaks between them.
func (w *writer) blocks(list []*node, s style, indent string, breaks int) {
	for i, n := range list {
		if i > 0 {
			w.breaks = max(w.breaks, breaks)
		}
		w.block(n, s, indent, breaks)
	}
}

func (w *writer) block(n *node, s style, indent string, breaks int) {
	w.indent = indent
	switch n.kind {
	case heading:
		s.bold = true
		w.inline(n.children, s)
	case bullets, numbers:
		for i, c := range n.children {
			if i > 0 {
				w.breaks = max(w.breaks, 1)
			}
			mark := "• "
			if n.kind == numbers {
				mark = strconv.Itoa(n.number+i) + ". "
			}
			w.indent = indent
			w.write(mark, s)
			w.blocks(c.children, s, indent+"  ", 1)
			w.breaks = max(w.breaks, 1) // also after an empty item
		}
	case quote:
		s.quote = true
		w.blocks(n.children, s, indent, breaks)
	case pre:
		w.code(n.text, s, n.language)
	case rule:
		w.write("———", s)
	case table:
		w.code(grid(n), s, "")
	default:
		w.inline(n.children, s)
	}
}

// code writes a block of code.
func (w *writer) code(text string, s style, language string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	w.pres++
	w.indent = ""
	w.write(text, style{pre: true, quote: s.quote, language: language, block: w.pres})
}

func (w *writer) inline(list []*node, s style) {
	for _, n := range list {
		in := s
		switch n.kind {
		case newline:
			w.breaks = max(w.breaks, 1)
			continue
		case code:
			w.write(n.text, style{code: true, quote: s.quote})
			continue
		case bold:
			in.bold = true
		case italic:
			in.italic = true
		case strike:
			in.strike = true
		case link:
			in.to = n.to
		}
		w.write(n.text, in)
		w.inline(n.children, in)
	}
}

// write appends a text, after the line breaks that are due.
func (w *writer) write(text string, s style) {
	if text == "" {
		return
	}
	if w.breaks > 0 && len(w.runs) > 0 {
		last := w.runs[len(w.runs)-1].style
		w.add(strings.Repeat("\n", w.breaks)+w.indent, style{quote: s.quote && last.quote})
	}
	w.breaks = 0
	w.add(text, s)
}

func (w *writer) add(text string, s style) {
	if i := len(w.runs) - 1; i >= 0 && w.runs[i].style == s {
		w.runs[i].text += text
		return
	}
	w.runs = append(w.runs, run{text, s})
}

// trim takes white space off both ends.
func trim(list []run) []run {
	for len(list) > 0 {
		if list[0].text = strings.TrimLeftFunc(list[0].text, unicode.IsSpace); list[0].text != "" {
			break
		}
		list = list[1:]
	}
	for len(list) > 0 {
		last := &list[len(list)-1]
		if last.text = strings.TrimRightFunc(last.text, unicode.IsSpace); last.text != "" {
			break
		}
		list = list[:len(list)-1]
	}
	return list
}

// maxPad is the widest column that is filled up with blanks, in characters: a wide cell must not
// make every row as wide.
const maxPad = 32

// grid returns a table as lines of equal columns.
func grid(n *node) string {
	var rows [][]string
	var widths []int
	for _, r := range n.children {
		var cells []string
		for i, c := range r.children {
			var w writer
			w.inline(c.children, style{})
			text := strings.ReplaceAll(join(trim(w.runs)), "\n", " ")
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = min(max(widths[i], utf8.RuneCountInString(text)), maxPad)
			cells = append(cells, text)
		}
		rows = append(rows, cells)
	}
	var b strings.Builder
	for i, cells := range rows {
		var line strings.Builder
		for k, c := range cells {
			if k > 0 {
				line.WriteString(" | ")
			}
			line.WriteString(c + strings.Repeat(" ", max(0, widths[k]-utf8.RuneCountInString(c))))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if i == 0 {
			for k := range widths {
				if k > 0 {
					b.WriteString("-|-")
				}
				b.WriteString(strings.Repeat("-", widths[k]))
			}
			b.WriteByte('\n')
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func join(list []run) string {
	var b strings.Builder
	for _, r := range list {
		b.WriteString(r.text)
	}
	return b.String()
}
