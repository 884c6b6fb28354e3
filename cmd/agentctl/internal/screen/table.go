// Package screen formats the output of agentctl for people, and asks them: tables that fit the
// terminal, colors, ages, progress, and untrusted text made safe.
//
// It promises that nothing from an event, a file or a service can move the cursor or
// change the terminal ([Clean]); that output that is not a terminal has no color, no
// border and nothing truncated; and that a table is never wider than the terminal.
//
// A list is described once, as a [Table], and printed in each form of --output. What
// JSON, YAML and names look like is decided by package command.
package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"

	"github.com/theclaw/agents/cmd/internal/command"
)

// least is the fewest columns to which a cell is cut while another column can be left out.
const least = 16

// Table prints rows in columns. Where the terminal is too narrow, the cells of one column
// are cut first, to [least]; then columns are left out, the least important first; and at
// last that one column is cut to what is left.
type Table struct {
	env        *command.Env
	titles     []string
	rows       [][]string
	cut        int      // the column that is cut
	drop, wide []string // titles: left out first to last; only with -o wide
	data       any
	names      []int
	none       string
	before     func()
	then       func()
	widths     []int // of what was printed before
}

// NewTable makes a table with these column titles. Unless it is said otherwise the last
// column is the one that is cut, the further to the right the less important the others
// are, and the first is the name of what a row is about.
func NewTable(e *command.Env, titles ...string) *Table {
	return &Table{env: e, titles: titles, cut: len(titles) - 1, names: []int{0}}
}

// Cut chooses the column that is cut.
func (t *Table) Cut(title string) *Table {
	t.cut = slices.Index(t.titles, title)
	return t
}

// Drop names columns that are left out before all others, the least important first.
func (t *Table) Drop(titles ...string) *Table {
	t.drop = titles
	return t
}

// Wide names columns that are there only with -o wide.
func (t *Table) Wide(titles ...string) *Table {
	t.wide = titles
	return t
}

// Names chooses the columns that together name what a row is about.
func (t *Table) Names(columns ...int) *Table {
	t.names = columns
	return t
}

// Data is what programs get instead of the items themselves.
func (t *Table) Data(v any) *Table {
	t.data = v
	return t
}

// None is the note for people when there are no rows.
func (t *Table) None(note string) *Table {
	t.none = note
	return t
}

// Before prints what comes before the table for people.
func (t *Table) Before(print func()) *Table {
	t.before = print
	return t
}

// Then prints what comes after the table for people.
func (t *Table) Then(print func()) *Table {
	t.then = print
	return t
}

// List prints items in the form that the command line asks for: as data, by name, or as
// t with a row for each.
func List[T any](t *Table, items []T, row func(T) []any) error {
	names := make([]string, 0, len(items))
	for _, item := range items {
		cells := row(item)
		t.Row(cells...)
		parts := make([]string, 0, 1)
		for _, n := range t.names {
			parts = append(parts, fmt.Sprint(cells[n]))
		}
		names = append(names, strings.Join(parts, " "))
	}
	if t.data == nil {
		t.data = items
	}
	return t.env.Print(t.data, names, func() error {
		if t.before != nil {
			t.before()
		}
		t.Print()
		if len(items) == 0 && t.none != "" {
			t.env.Note("%s", t.none)
		}
		if t.then != nil {
			t.then()
		}
		return nil
	})
}

// Row adds a row; its cells are made harmless.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Line(fmt.Sprint(c))
	}
	t.rows = append(t.rows, row)
}

// Print writes the rows since the last Print, the first time below the titles; without
// rows it writes nothing.
func (t *Table) Print() {
	if len(t.rows) == 0 {
		return
	}
	lines := t.Lines(t.env.Width())
	if t.widths != nil {
		lines = lines[1:]
	}
	fmt.Fprintln(t.env.Out, strings.Join(lines, "\n"))
	t.widths, t.rows = t.natural(), nil
}

// natural are the widths of the columns when nothing is cut.
func (t *Table) natural() []int {
	widths := make([]int, len(t.titles))
	for i, title := range t.titles {
		widths[i] = lipgloss.Width(title)
		if t.widths != nil {
			widths[i] = t.widths[i]
		}
		for _, r := range t.rows {
			widths[i] = max(widths[i], lipgloss.Width(r[i]))
		}
	}
	return widths
}

// Lines are the title and the rows, none wider than width; 0 is no limit.
func (t *Table) Lines(width int) []string {
	if t.env.Wide() {
		width = 0
	}
	widths := t.natural()
	shown := t.fit(widths, width)
	lines := make([]string, 0, len(t.rows)+1)
	for n, r := range append([][]string{t.titles}, t.rows...) {
		var b strings.Builder
		for _, i := range shown {
			cell := clip(r[i], widths[i])
			if n == 0 {
				cell = strings.ToUpper(cell)
			}
			b.WriteString(cell + strings.Repeat(" ", widths[i]-lipgloss.Width(cell)+gap))
		}
		l := strings.TrimRight(b.String(), " ")
		if n == 0 {
			l = Paint(t.env, text.Bold, l)
		}
		lines = append(lines, l)
	}
	return lines
}

// gap is between two columns.
const gap = 2

// fit answers the columns that are shown in width, and cuts the width of one.
func (t *Table) fit(widths []int, width int) []int {
	var shown []int
	total := -gap
	for i, title := range t.titles {
		if t.env.Wide() || !slices.Contains(t.wide, title) {
			shown, total = append(shown, i), total+widths[i]+gap
		}
	}
	if width == 0 {
		return shown
	}
	leave := func(i int) {
		shown, total = slices.DeleteFunc(shown, func(n int) bool { return n == i }), total-widths[i]-gap
	}
	order := make([]int, 0, len(t.titles))
	for _, title := range t.drop {
		order = append(order, slices.Index(t.titles, title))
	}
	for i := len(t.titles) - 1; i > 0; i-- {
		if !slices.Contains(order, i) && i != t.cut {
			order = append(order, i)
		}
	}
	for _, i := range order {
		if total-max(0, widths[t.cut]-least) <= width {
			break
		}
		if slices.Contains(shown, i) {
			leave(i)
		}
	}
	for _, i := range []int{t.cut, 0} { // what cannot be left out
		if over := total - width; over > 0 && slices.Contains(shown, i) {
			by := min(over, widths[i]-1)
			widths[i], total = widths[i]-by, total-by
		}
	}
	if total > width {
		shown, widths[shown[0]] = shown[:1], width
	}
	return shown
}

// clip is s in at most width columns.
func clip(s string, width int) string {
	switch {
	case lipgloss.Width(s) <= width:
		return s
	case width < 2:
		return "…"
	}
	return lipgloss.NewStyle().Inline(true).MaxWidth(width-1).Render(s) + "…"
}

// Paint colors s when the output may have colors.
func Paint(e *command.Env, c text.Color, s string) string {
	if !e.Color() {
		return s
	}
	return c.Sprint(s)
}

// Clean makes text of others harmless for a terminal and leaves its line breaks
// and tabs: control and format characters become visible escapes.
func Clean(s string) string {
	harmless := func(r rune) bool {
		return r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r)
	}
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !harmless(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if harmless(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\x%02x", r)
		}
	}
	return b.String()
}

// Text is s for standard output: made harmless when that is a terminal, byte for
// byte when it is not.
func Text(e *command.Env, s string) string {
	if e.Width() == 0 {
		return s
	}
	return Clean(s)
}

// Line is Clean on one line.
func Line(s string) string {
	return strings.NewReplacer("\n", "⏎", "\t", " ", "\u2028", "⏎", "\u2029", "⏎").Replace(Clean(s))
}

// Age says how long ago t was, in one unit; "-" for the zero time.
func Age(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := max(0, now.Sub(t)); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Progress draws a bar for work of n parts on standard error when that is a
// terminal; step counts one part, done removes the bar.
func Progress(e *command.Env, n int, what string) (step, done func()) {
	if !e.ErrIsTerminal() || e.Flags.JSON || n < 8 {
		return func() {}, func() {}
	}
	bar := progressbar.NewOptions(n, progressbar.OptionSetWriter(e.Err), progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(24), progressbar.OptionShowCount(), progressbar.OptionThrottle(80*time.Millisecond),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false))
	return func() { _ = bar.Add(1) }, func() { _ = bar.Finish() }
}
