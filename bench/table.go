package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// table collects rows: what, goal, measured.
type table struct {
	rows []row
	note string
}

type row struct {
	what, goal, measured string
	met                  *bool // nil: a figure without a goal
}

func (t *table) figure(what, measured string) { t.rows = append(t.rows, row{what, "", measured, nil}) }

func (t *table) atMost(what string, got, goal time.Duration) {
	met := got <= goal
	t.rows = append(t.rows, row{what, "<= " + short(goal), short(got), &met})
}

func (t *table) atLeast(what string, got, goal float64, unit string) {
	met := got >= goal
	t.rows = append(t.rows, row{what, fmt.Sprintf(">= %.0f%s", goal, unit), fmt.Sprintf("%.0f%s", got, unit), &met})
}

func (t *table) ratio(what string, got, goal float64) {
	met := got >= goal
	t.rows = append(t.rows, row{what, fmt.Sprintf(">= %.2f", goal), fmt.Sprintf("%.2f", got), &met})
}

func (t *table) below(what string, got, goal float64, unit string) {
	met := got <= goal
	t.rows = append(t.rows, row{what, fmt.Sprintf("<= %.3g%s", goal, unit), fmt.Sprintf("%.3g%s", got, unit), &met})
}

func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dus", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.2fms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.2fs", d.Seconds())
}

func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-58s %-14s %-12s %s\n", "what", "goal", "measured", "met")
	for _, r := range t.rows {
		met := ""
		if r.met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*r.met]
		}
		fmt.Fprintf(&b, "%-58s %-14s %-12s %s\n", r.what, r.goal, r.measured, met)
	}
	fmt.Fprintln(&b, t.note)
	return b.String()
}

// where says on what the table was measured.
func where() string {
	return fmt.Sprintf("%s, %s/%s, %d cores, %s", time.Now().UTC().Format("2006-01-02"), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// The lines between which a page shows the table.
const (
	showFrom = "<!-- bench: from here to the next such line `make bench` writes -->\n"
	showTo   = "<!-- bench: end -->\n"
)

// show replaces the table of a page.
func (t *table) show(page string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), showFrom)
	_, after, ends := strings.Cut(rest, showTo)
	if !ok || !ends {
		return fmt.Errorf("%s has no place for the table", page)
	}
	return os.WriteFile(page, []byte(before+showFrom+where()+"\n\n```text\n"+t.String()+"```\n"+showTo+after), 0o644)
}

func (t *table) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# %s\n\n```\n%s```\n", where(), t)
	return os.WriteFile(filepath.Join(dir, time.Now().UTC().Format("2006-01-02")+".md"), []byte(text), 0o644)
}
