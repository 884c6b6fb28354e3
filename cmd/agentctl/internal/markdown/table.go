package markdown

import (
	"strings"

	"charm.land/lipgloss/v2"
)

var ruled = compiled(`^\s*\|(\s*:?-+:?\s*\|)+\s*$`)

// table lays out rows in columns. One that has no rule under its first row is no
// table, and one that is wider than the room keeps its marks: its rows are broken
// like any text, and nothing of them is left out.
func (s *Stream) table(rows []string) []string {
	var out []string
	if len(s.lines) == 0 && s.style.Lead != "" {
		out = append(out, s.style.Edge+s.style.Lead)
	}
	room := max(s.width-lipgloss.Width(s.style.Edge), 4)
	raw := func() []string {
		for _, r := range rows {
			out = append(out, s.edged(wrap("", "", strings.TrimSpace(r), room))...)
		}
		return out
	}
	if len(rows) < 2 || !ruled().MatchString(rows[1]) {
		return raw()
	}
	cells, wide := [][]string{}, []int{}
	for i, r := range rows {
		if i == 1 {
			continue
		}
		row := split(r)
		for j, c := range row {
			row[j] = s.spans(c)
			if j == len(wide) {
				wide = append(wide, 0)
			}
			wide[j] = max(wide[j], lipgloss.Width(row[j]))
		}
		cells = append(cells, row)
	}
	total := 0
	for _, w := range wide {
		total += w + 3
	}
	if total-3 > room {
		return raw()
	}
	for i, row := range cells {
		var b strings.Builder
		for j, w := range wide {
			c := ""
			if j < len(row) {
				c = row[j]
			}
			if j > 0 {
				b.WriteString(" │ ")
			}
			b.WriteString(c)
			if j < len(wide)-1 {
				b.WriteString(strings.Repeat(" ", w-lipgloss.Width(c)))
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if i == 0 {
			line = bold + line + reset
		}
		out = append(out, s.style.Edge+line)
		if i == 0 {
			parts := make([]string, len(wide))
			for j, w := range wide {
				parts[j] = strings.Repeat("─", w)
			}
			out = append(out, s.style.Edge+strings.Join(parts, "─┼─"))
		}
	}
	return out
}

// split cuts a row into its cells; \| is a bar that is meant.
func split(row string) []string {
	row = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(row), "|"), "|")
	cells := strings.Split(strings.ReplaceAll(row, `\|`, "\x00"), "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(c, "\x00", "|"))
	}
	return cells
}
