package transcript

import (
	"strings"
	"time"
)

// View is the part of the conversation that fits: the end of it, or what was
// scrolled to.
func (t *Transcript) View(width, height int, now time.Time) []string {
	same := t.width == width
	t.width, t.height = width, max(height, 1)
	total := t.total(now)
	if t.up > 0 && same { // what is read stays where it is while text is added below
		t.up += max(total-t.lines, 0)
	}
	t.up, t.lines = min(t.up, max(0, total-t.height)), total
	skip := t.up
	var parts [][]string // from the last to the first
	need := t.height
	for i := len(t.entries) - 1; i >= 0 && need > 0; i-- {
		lines, more := t.entries[i].at(width, now, t.look)
		for _, lines := range [][]string{more, lines} {
			if skip >= len(lines) {
				skip -= len(lines)
				continue
			}
			lines = lines[:len(lines)-skip]
			skip = 0
			lines = lines[max(0, len(lines)-need):]
			need -= len(lines)
			parts = append(parts, lines)
		}
	}
	out := make([]string, 0, t.height)
	for i := len(parts) - 1; i >= 0; i-- {
		out = append(out, parts[i]...)
	}
	return out
}

// total is the number of lines. What is above the screen is looked at only when
// its width changed.
func (t *Transcript) total(now time.Time) int {
	n := 0
	for _, e := range t.entries {
		n += t.linesOf(e, now)
	}
	return n
}

func (t *Transcript) linesOf(e *entry, now time.Time) int {
	lines, more := e.at(t.width, now, t.look)
	return len(lines) + len(more)
}

// Scroll moves by lines, up when n is positive.
func (t *Transcript) Scroll(n int) { t.up = max(0, t.up+n) }

// Page is how far a page is.
func (t *Transcript) Page() int { return max(1, t.height-2) }

// Top scrolls to the beginning.
func (t *Transcript) Top() { t.up = 1 << 30 }

// Bottom follows the newest again.
func (t *Transcript) Bottom() { t.up = 0 }

// Below is how many lines there are below the screen.
func (t *Transcript) Below() int { return t.up }

// FoldAll folds everything, or opens everything; what comes later is like it.
func (t *Transcript) FoldAll() (open bool) {
	t.all = !t.all
	for _, e := range t.entries {
		if e.kind == tool || e.kind == thought {
			e.open, e.lines = t.all, nil
		}
	}
	return t.all
}

// Click folds or opens what is shown in a line of the last View.
func (t *Transcript) Click(line int, now time.Time) {
	if line < 0 || line >= t.height {
		return
	}
	line += max(0, t.total(now)-t.up-t.height)
	for _, e := range t.entries {
		n := t.linesOf(e, now)
		if line < n {
			if e.kind == tool || e.kind == thought {
				e.open, e.lines = !e.open, nil
			}
			return
		}
		line -= n
	}
}

// maxRest is how many lines are left behind in the terminal.
const maxRest = 2000

// Remaining is what was said since Mark, for the terminal the screen goes away from.
func (t *Transcript) Remaining(now time.Time) string {
	var lines []string
	for _, e := range t.entries[min(t.first, len(t.entries)):] {
		kept, more := e.at(t.width, now, t.look)
		lines = append(append(lines, kept...), more...)
	}
	lines = lines[max(0, len(lines)-maxRest):]
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimLeft(strings.Join(lines, "\n"), "\n") + "\n"
}
