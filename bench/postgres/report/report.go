// Package report owns the table that a bench prints, keeps and shows on a page: goal,
// measured, ratio to a limit of the same run, met or not. It measures nothing.
package report

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Table collects rows: what, goal, measured, ratio to the limit of the same run.
type Table struct {
	rows  []row
	Notes []string
}

type row struct {
	what, goal, measured, ratio string
	met                         *bool // nil: a figure without a goal
}

// Figure adds one without a goal.
func (t *Table) Figure(what, measured string) { t.add(row{what: what, measured: measured}) }

func (t *Table) add(r row) { t.rows = append(t.rows, r) }

// AtLeast compares a rate with a share of its limit.
func (t *Table) AtLeast(what string, got, limit, share float64) {
	met := got >= share*limit
	t.add(row{what, fmt.Sprintf(">= %.2f", share), fmt.Sprintf("%.0f/s", got), fmt.Sprintf("%.2f", got/limit), &met})
}

// AtMost compares a time with a bound, and with a multiple of a limit if there is one.
func (t *Table) AtMost(what string, got, bound, limit time.Duration, times float64) {
	met := got <= bound && (limit == 0 || float64(got) <= times*float64(limit))
	r := row{what: what, goal: "<= " + Short(bound), measured: Short(got), met: &met}
	if limit > 0 {
		r.goal += fmt.Sprintf(", %.0f F", times)
		r.ratio = fmt.Sprintf("%.1f F", float64(got)/float64(limit))
	}
	t.add(r)
}

// Flat compares a figure with that of the small case.
func (t *Table) Flat(what string, got, few time.Duration, most float64) {
	met := float64(got) <= most*float64(few)
	t.add(row{what, fmt.Sprintf("<= %.1f x few", most), Short(got) + ", few " + Short(few), fmt.Sprintf("%.2f", float64(got)/float64(few)), &met})
}

// Short is a duration with as many digits as one reads.
func Short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dus", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.2fms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.2fs", d.Seconds())
}

// String is the table as it is read.
func (t *Table) String() string {
	var b strings.Builder
	line := func(cells ...string) {
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%-66s %-16s %-28s %-8s %s", cells[0], cells[1], cells[2], cells[3], cells[4]), " "))
	}
	line("what", "goal", "measured", "ratio", "met")
	for _, r := range t.rows {
		met := ""
		if r.met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*r.met]
		}
		line(r.what, r.goal, r.measured, r.ratio, met)
	}
	for _, n := range t.Notes {
		fmt.Fprintln(&b, n)
	}
	return b.String()
}

// Where says on what the table was measured.
func Where() string {
	return fmt.Sprintf("%s, %s/%s, %d cores, %s", time.Now().UTC().Format("2006-01-02"), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// The lines between which a page shows the table.
const (
	showFrom = "<!-- bench-postgres: from here to the next such line `make bench-postgres` writes -->\n"
	showTo   = "<!-- bench-postgres: end -->\n"
)

// Show replaces the table of a page.
func (t *Table) Show(page string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), showFrom)
	_, after, ends := strings.Cut(rest, showTo)
	if !ok || !ends {
		return fmt.Errorf("%s has no place for the table", page)
	}
	return os.WriteFile(page, []byte(before+showFrom+Where()+"\n\n```text\n"+t.String()+"```\n"+showTo+after), 0o644)
}

func (t *Table) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# %s\n\n```\n%s```\n", Where(), t)
	return os.WriteFile(filepath.Join(dir, time.Now().UTC().Format("2006-01-02")+"-postgres.md"), []byte(text), 0o644)
}
