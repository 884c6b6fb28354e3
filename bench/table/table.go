// Package table formats the table of a measurement: name, goal, measured value, distance
// from the goal, met or not, on the screen, in a file of results and in a page.
//
// It promises that a missed goal is printed as missed, and that a page keeps everything
// outside the lines that mark the table's place. It measures nothing.
package table

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Table collects rows.
type Table struct {
	rows  []row
	Notes []string // below it
}

type row struct {
	what, goal, measured, ratio string
	met                         *bool // nil: a figure without a goal
	section                     bool  // a heading, which is what
}

// Section adds a heading of the rows that follow.
func (t *Table) Section(name string) {
	t.rows = append(t.rows, row{what: name, section: true})
}

// Figure adds one without a goal.
func (t *Table) Figure(what, measured string) {
	t.rows = append(t.rows, row{what: what, measured: measured})
}

func (t *Table) judge(what, goal, measured string, ratio float64, met bool) {
	t.rows = append(t.rows, row{what: what, goal: goal, measured: measured, ratio: fmt.Sprintf("%.2f", ratio), met: &met})
}

// AtMost adds a time that is to be short.
func (t *Table) AtMost(what string, got, goal time.Duration) {
	t.judge(what, "<= "+Short(goal), Short(got), float64(got)/float64(goal), got <= goal)
}

// Within adds a time that is to be at most so many times a unit, such as F.
func (t *Table) Within(what string, got time.Duration, most float64, name string, unit time.Duration) {
	n := float64(got) / float64(unit)
	t.judge(what, fmt.Sprintf("<= %g %s", most, name), fmt.Sprintf("%s = %.1f %s", Short(got), n, name), n/most, n <= most)
}

// AtLeast adds a number that is to be great.
func (t *Table) AtLeast(what string, got, goal float64) {
	t.judge(what, ">= "+number(goal), number(got), got/goal, got >= goal)
}

// Share adds a rate that is to be at least a part of another one.
func (t *Table) Share(what string, got, whole, least float64) {
	part := got / whole
	t.judge(what, fmt.Sprintf(">= %g", least), fmt.Sprintf("%.0f/s = %.2f", got, part), part/least, part >= least)
}

// Flat adds a time that is to be about what it is in the small case, few.
func (t *Table) Flat(what string, got, few time.Duration, most float64) {
	n := float64(got) / float64(few)
	t.judge(what, fmt.Sprintf("<= %g x few", most), Short(got)+", few "+Short(few), n/most, n <= most)
}

// Below adds a number that is to be small.
func (t *Table) Below(what string, got, goal float64) {
	t.judge(what, "<= "+number(goal), number(got), got/goal, got <= goal)
}

// Count adds a number that is counted, which is to be at most a goal that may be 0.
func (t *Table) Count(what string, got, most float64) {
	ratio := 1.0
	switch {
	case most > 0:
		ratio = got / most
	case got > 0:
		ratio = math.Inf(1)
	}
	t.judge(what, "<= "+number(most), number(got), ratio, got <= most)
}

// number shows three digits of a small one and no fraction of a great one.
func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Short is a time in the unit that suits it.
func Short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dus", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.2fms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.2fs", d.Seconds())
}

// widest are columns as they are at most; what is longer pushes its row aside.
var widest = [3]int{66, 14, 30}

// String is the table as it is read.
func (t *Table) String() string {
	list := append([]row{{what: "what", goal: "goal", measured: "measured", ratio: "/ goal"}}, t.rows...)
	var wide [3]int
	for _, r := range list {
		if r.section {
			continue
		}
		for i, cell := range []string{r.what, r.goal, r.measured} {
			wide[i] = min(max(wide[i], len(cell)), widest[i])
		}
	}
	var b strings.Builder
	for i, r := range list {
		met := "met"
		switch {
		case r.section:
			b.WriteString("\n" + r.what + "\n")
			continue
		case i == 0:
		case r.met == nil:
			met = ""
		default:
			met = map[bool]string{true: "yes", false: "NO"}[*r.met]
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s %-*s %-*s %-6s %s", wide[0], r.what, wide[1], r.goal, wide[2], r.measured, r.ratio, met), " ") + "\n")
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

// Show puts the table into its place in a page: between the lines that carry its name.
func (t *Table) Show(page, name string) error {
	return Put(page, name, Where()+"\n\n```text\n"+t.String()+"```\n")
}

// Put replaces what stands in a page between the lines of a name.
func Put(page, name, text string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(string(b), "\n")
	from, to := -1, -1
	for i, l := range lines {
		switch {
		case strings.HasPrefix(l, "<!-- "+name+": from here "):
			from = i
		case l == "<!-- "+name+": end -->\n":
			to = i
		}
	}
	if from < 0 || to < from {
		return fmt.Errorf("%s has no place named %s", page, name)
	}
	return os.WriteFile(page, []byte(strings.Join(lines[:from+1], "")+text+strings.Join(lines[to:], "")), 0o644)
}

// Write keeps the table in a file of the day; a name tells kinds of tables apart.
func (t *Table) Write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# %s\n\n```\n%s```\n", Where(), t)
	return os.WriteFile(filepath.Join(dir, time.Now().UTC().Format("2006-01-02")+name+".md"), []byte(text), 0o644)
}
