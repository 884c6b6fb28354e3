package agentlog

import "time"

// maxLate is how many lines of one file wait at most.
const maxLate = 256

// Delay lets lines that are handed over by [Log.Later] wait so long for others; a
// process that is killed loses what waits. It is set before the first line.
func (l *Log) Delay(d time.Duration) { l.delay = d }

// Later is Append for lines that may wait for others to come: one write, and one
// lock, then do for all of them. failed is called when they cannot be written.
func (l *Log) Later(dir string, failed func(error), lines ...Line) {
	if l.delay <= 0 {
		if err := l.Append(dir, lines...); err != nil {
			failed(err)
		}
		return
	}
	now := time.Now()
	for i := range lines {
		if lines[i].At.IsZero() {
			lines[i].At = now
		}
	}
	l.mu.Lock()
	w, soon := l.late[dir]
	w = late{append(w.lines, lines...), failed}
	l.late[dir] = w
	l.mu.Unlock()
	switch {
	case len(w.lines) >= maxLate:
		l.flush(dir)
	case !soon:
		time.AfterFunc(l.delay, func() { l.flush(dir) })
	}
}

// late are lines that wait.
type late struct {
	lines  []Line
	failed func(error)
}

func (l *Log) flush(dir string) {
	l.flushing.Lock() // one at a time, so that the lines keep their order
	defer l.flushing.Unlock()
	l.mu.Lock()
	w := l.late[dir]
	delete(l.late, dir)
	l.mu.Unlock()
	if len(w.lines) == 0 {
		return
	}
	if err := l.Append(dir, w.lines...); err != nil {
		w.failed(err)
	}
}

// flushAll writes what waits.
func (l *Log) flushAll() {
	l.mu.Lock()
	var dirs []string
	for dir := range l.late {
		dirs = append(dirs, dir)
	}
	l.mu.Unlock()
	for _, dir := range dirs {
		l.flush(dir)
	}
}
