package markdown

import (
	"slices"
	"strings"
)

// table is what is known of a table begun. Its first row may be any line with a bar in it:
// the rule below that makes it a table.
//
//	row | row    the columns get their widths from the rows that are here at the end of
//	----|----    the table, or from the first maxRows; later rows are laid out at once
//	row | row
type table struct {
	rows    []string
	columns []column // once they have their widths
}

type column struct {
	wide int
	side rune // the text is at the left, the right, or in the center
}

var (
	ruled     = compiled(`^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$`)
	lineBreak = compiled(`(?i)<br\s*/?>`)
)

// row takes a line that belongs to a table, or may begin one. Another one ends the table.
func (s *Stream) row(line string) bool {
	bar := strings.Contains(line, "|") && strings.TrimSpace(line) != "|"
	t := &s.table
	switch {
	case bar && len(t.rows) == 1 && ruled().MatchString(line) && len(split(line)) == len(split(t.rows[0])), len(t.rows) > 1 && bar:
		t.rows = append(t.rows, line)
		if len(t.columns) > 0 {
			s.lines = append(s.lines, s.laid(t.columns, split(line), "")...)
			t.rows = t.rows[:2]
		} else if len(t.rows) > maxRows {
			s.lines = append(s.lines, s.rows(t.rows)...)
			t.rows, t.columns = t.rows[:2], s.fit(t.rows)
		}
		return true
	}
	s.endTable()
	if bar && fenceMark().FindString(line) == "" {
		t.rows = []string{line}
	}
	return bar && len(t.rows) == 1
}

// endTable lays out the table begun: what comes next is not of it.
func (s *Stream) endTable() {
	s.lines = append(s.lines, s.rows(s.table.rows)...)
	s.table = table{}
}

// begun is the table begun with the row that has no end yet; false where there is none.
func (s *Stream) begun() (lines []string, row bool) {
	t := &s.table
	switch row = len(t.rows) > 1 && strings.Contains(s.open, "|"); {
	case !row:
		return s.rows(t.rows), false
	case len(t.columns) > 0:
		return s.laid(t.columns, split(s.open), ""), true
	}
	return s.rows(append(t.rows[:len(t.rows):len(t.rows)], s.open)), true
}

// rows are lines of the table begun that are not laid out yet.
func (s *Stream) rows(rows []string) (lines []string) {
	switch {
	case len(s.table.columns) > 0 || len(rows) == 0:
		return nil
	case len(rows) == 1: // no table, as far as is known
		return s.line(rows[0], len(s.lines) == 0)
	}
	columns := s.fit(rows)
	lines = append(s.alone(), s.laid(columns, split(rows[0]), bold)...)
	rule := make([]string, len(columns))
	for j, c := range columns {
		rule[j] = strings.Repeat("─", c.wide)
	}
	lines = append(lines, s.edged(s.wrap("", "", strings.Join(rule, "─┼─"), s.room()))...)
	for _, r := range rows[2:] {
		lines = append(lines, s.laid(columns, split(r), "")...)
	}
	return lines
}

// fit gives the columns of rows their widths: that of their text, and where the room is too
// small the widest ones share what the others leave.
func (s *Stream) fit(rows []string) []column {
	columns := []column{}
	for _, c := range split(rows[1]) {
		side := 'l'
		switch left, right := strings.HasPrefix(c, ":"), strings.HasSuffix(c, ":"); {
		case left && right:
			side = 'c'
		case right:
			side = 'r'
		}
		columns = append(columns, column{2, side})
	}
	for i, r := range rows {
		for j, c := range split(r) {
			if i != 1 && j < len(columns) {
				for _, part := range lineBreak().Split(c, -1) {
					columns[j].wide = max(columns[j].wide, s.columns(s.spans(strings.TrimSpace(part))))
				}
			}
		}
	}
	room := s.room() - 3*(len(columns)-1)
	for {
		sum, most := 0, 0
		for _, c := range columns {
			sum, most = sum+c.wide, max(most, c.wide)
		}
		if sum <= room || most <= narrow {
			return columns
		}
		at := slices.IndexFunc(columns, func(c column) bool { return c.wide == most })
		columns[at].wide--
	}
}

// narrow is the least width of a column that has more text; a table for which this is too
// wide is shown with its marks.
const narrow = 4

// laid is one row in columns, as many lines as its highest cell. Cells that have no column
// are shown behind the last one.
func (s *Stream) laid(columns []column, cells []string, look string) (lines []string) {
	total, height := 3*(len(columns)-1), 1
	for _, c := range columns {
		total += c.wide
	}
	if total > s.room() {
		return s.edged(s.wrap("", "", look+s.spans("| "+strings.Join(cells, " | ")+" |")+reset, s.room()))
	}
	if n := len(columns); len(cells) > n {
		cells = append(cells[:n-1:n-1], strings.Join(cells[n-1:], " | "))
	}
	parts := make([][]string, len(columns))
	for j, c := range cells {
		for _, part := range lineBreak().Split(c, -1) {
			parts[j] = append(parts[j], s.fold(s.spans(strings.TrimSpace(part)), columns[j].wide)...)
		}
		height = max(height, len(parts[j]))
	}
	for y := range height {
		row := make([]string, len(columns))
		for j, c := range columns {
			text := ""
			if y < len(parts[j]) {
				text = look + parts[j][y]
			}
			if look != "" {
				text += reset
			}
			left := max(c.wide-s.columns(text), 0)
			switch c.side {
			case 'r':
				text = strings.Repeat(" ", left) + text
			case 'c':
				text = strings.Repeat(" ", left/2) + text + strings.Repeat(" ", left-left/2)
			default:
				text += strings.Repeat(" ", left)
			}
			row[j] = text
		}
		lines = append(lines, strings.TrimRight(strings.Join(row, " │ "), " "))
	}
	return s.edged(lines)
}

// split cuts a row into its cells; \| is a bar that is meant.
func split(row string) []string {
	row = strings.ReplaceAll(strings.TrimSpace(row), `\|`, "\x00")
	row = strings.TrimSuffix(strings.TrimPrefix(row, "|"), "|")
	cells := strings.Split(row, "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(c, "\x00", "|"))
	}
	return cells
}
