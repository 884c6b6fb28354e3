package agentlog

import (
	"container/list"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/obs/redact"
)

// Limits of agent.log; the first is part of the external surface (S0-141).
const (
	maxLines = 10000 // the line after these goes into a new file
	maxOpen  = 64    // files held open at once; an idle one closes when others come
)

// Level is the word between brackets in a line of agent.log.
type Level string

// The levels of agent.log.
const (
	Debug Level = "DEBUG"
	Info  Level = "INFO"
	Warn  Level = "WARN"
	Error Level = "ERROR"
)

// Line is one line of agent.log.
type Line struct {
	At    time.Time // zero: now
	Level Level     // "": INFO
	Text  string    // any text; escaped, redacted and capped at [redact.MaxValue] bytes
}

// Log appends to the agent.log files of many agents. It is safe for
// concurrent use, and several processes may append to the same file.
type Log struct {
	redact   func(string) string
	lockWait time.Duration
	delay    time.Duration
	flushing sync.Mutex

	mu    sync.Mutex
	late  map[string]late          // by directory
	files map[string]*list.Element // by path; the element's value is a *logFile
	order *list.List               // most recently used first
}

// New returns a writer; a nil r only escapes and caps.
func New(r *redact.Redactor) *Log {
	l := &Log{files: make(map[string]*list.Element), late: make(map[string]late), order: list.New(), lockWait: lockWait}
	l.redact = func(s string) string { return redact.Cap(redact.Escape(s), redact.MaxValue) }
	if r != nil {
		l.redact = r.Redact
	}
	return l
}

// Append writes lines, in order and unbroken by other writers' lines up to a
// rotation, to agent.log in dir (an agent's logs directory, made with mode 0700
// when only it is missing). nil means that every line is in agent.log or in a
// rotated file; it does not mean that they survive a power loss.
func (l *Log) Append(dir string, lines ...Line) error {
	if len(lines) == 0 {
		return nil
	}
	text := make([][]byte, len(lines))
	for i, line := range lines {
		text[i] = l.format(line)
	}
	for {
		f := l.file(filepath.Clean(dir))
		f.mu.Lock()
		if f.evicted { // closed between lookup and lock: look up again
			f.mu.Unlock()
			continue
		}
		err := f.append(text)
		f.mu.Unlock()
		if err != nil {
			return fmt.Errorf("append agent log: %w", err)
		}
		return nil
	}
}

// Clean is a text as it may stand in a line: escaped, redacted and capped.
func (l *Log) Clean(text string) string { return l.redact(text) }

// format renders a line with its end.
func (l *Log) format(line Line) []byte {
	line.Text = l.redact(line.Text)
	return append([]byte(Text(line)), '\n')
}

// Text is `[2026-11-20T10:49:31.732Z] [INFO] text` (S0-140); the text is clean.
func Text(line Line) string {
	if line.At.IsZero() {
		line.At = time.Now()
	}
	if line.Level == "" {
		line.Level = Info
	}
	b := make([]byte, 0, len(line.Text)+40)
	b = append(b, '[')
	b = line.At.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, "] ["...)
	b = append(b, redact.Escape(string(line.Level))...)
	b = append(b, "] "...)
	return string(append(b, line.Text...))
}

// file finds or makes the entry for dir and closes the least used one when there
// are too many.
func (l *Log) file(dir string) *logFile {
	l.mu.Lock()
	if e, ok := l.files[dir]; ok {
		l.order.MoveToFront(e)
		l.mu.Unlock()
		return e.Value.(*logFile)
	}
	f := &logFile{dir: dir, lockWait: l.lockWait}
	l.files[dir] = l.order.PushFront(f)
	var old *logFile
	if l.order.Len() > maxOpen {
		old = l.order.Remove(l.order.Back()).(*logFile)
		delete(l.files, old.dir)
	}
	l.mu.Unlock()
	if old != nil { // outside l.mu: it may be writing
		_ = old.evict() // everything was written; there is nothing to flush
	}
	return f
}

// Forget closes the file of dir, for an agent that is removed or moved. Lines that wait
// are dropped: they must not get into the log of another agent of the name.
func (l *Log) Forget(dir string) error {
	l.mu.Lock()
	delete(l.late, dir)
	e, ok := l.files[filepath.Clean(dir)]
	if ok {
		l.order.Remove(e)
		delete(l.files, e.Value.(*logFile).dir)
	}
	l.mu.Unlock()
	if !ok {
		return nil
	}
	return e.Value.(*logFile).evict()
}

// Close writes what waits and closes all files. The Log stays usable; a later
// Append opens the file again.
func (l *Log) Close() error {
	l.flushAll()
	l.mu.Lock()
	var all []*logFile
	for e := l.order.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*logFile))
	}
	clear(l.files)
	l.order.Init()
	l.mu.Unlock()
	var first error
	for _, f := range all {
		if err := f.evict(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
