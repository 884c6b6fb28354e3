// Package screen formats the output of agentctl for people: tables that fit the
// terminal, colors, ages, progress, and untrusted text made safe.
//
// It promises that nothing from an event, a file or a service can move the cursor or
// change the terminal ([Clean]); that output that is not a terminal has no color, no
// border and nothing truncated; and that a table is never wider than the terminal.
//
// It prints data for people. Data for programs is printed by PrintJSON of package
// command.
package screen

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"

	"github.com/theclaw/agents/cmd/internal/command"
)

// Table collects rows and prints them in columns.
type Table struct {
	env    *command.Env
	header []string
	rows   [][]string
	wide   int
}

// NewTable makes a table with these column titles. The last column is the one
// that is shortened when the terminal is too narrow; see [Table.Shorten].
func NewTable(e *command.Env, header ...string) *Table {
	return &Table{env: e, header: header, wide: len(header) - 1}
}

// Shorten chooses the column to shorten, from 0.
func (t *Table) Shorten(column int) *Table {
	t.wide = column
	return t
}

// Row adds a row; its cells are made harmless.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = Line(c)
	}
	t.rows = append(t.rows, cells)
}

// Print writes the table, or nothing when it has no rows.
func (t *Table) Print() {
	if len(t.rows) == 0 {
		return
	}
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format = table.FormatOptions{Header: text.FormatUpper}
	if t.env.Color() {
		style.Color.Header = text.Colors{text.Bold}
	}
	header := make(table.Row, len(t.header))
	for i, h := range t.header {
		header[i] = h
	}
	w.AppendHeader(header)
	limit := t.limit()
	for _, r := range t.rows {
		row := make(table.Row, len(r))
		for i, c := range r {
			if i == t.wide && limit > 0 {
				c = text.Snip(c, limit, "…")
			}
			row[i] = c
		}
		w.AppendRow(row)
	}
	if width := t.env.Width(); width > 0 {
		style.Size.WidthMax = width
	}
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	fmt.Fprintln(t.env.Out, w.Render())
}

// limit is the room for the shortened column; 0 means no limit.
func (t *Table) limit() int {
	width := t.env.Width()
	if width == 0 {
		return 0
	}
	rest := 2
	for i := range t.header {
		if i == t.wide {
			continue
		}
		widest := text.StringWidth(t.header[i])
		for _, r := range t.rows {
			widest = max(widest, text.StringWidth(r[i]))
		}
		rest += widest + 2
	}
	return max(width-rest, 8)
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
