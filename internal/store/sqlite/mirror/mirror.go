// Package mirror writes events.jsonl, the text file next to a database: one line per
// event, for people and for the external tools that follow it.
//
// The database is authoritative: an error here drops lines and never an event. The
// file is opened with the first append, which also catches up on the lines that
// a crash left out, and opened again when another program rotated it. It holds
// at most 10,000 lines; then it gets a stamp in its name and a new one begins.
package mirror

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/theclaw/agents/internal/thread"
)

// maxLines is the length at which events.jsonl is rotated before an append.
const maxLines = 10000

// Mirror is the events.jsonl of one thread directory. It is not safe for
// concurrent use.
type Mirror struct {
	dir string
	// missing calls fn for the events with after < id < before, by id.
	missing func(after, before int64, fn func(thread.Event) error) error

	f     *os.File
	size  int64 // of the file when we last looked
	lines int   // in it
	last  int64 // greatest event id in it when it was opened
	buf   []byte
}

// New makes the mirror in dir; nothing is opened yet.
func New(dir string, missing func(after, before int64, fn func(thread.Event) error) error) *Mirror {
	return &Mirror{dir: dir, missing: missing}
}

// Append writes committed events, in the order of their ids.
func (m *Mirror) Append(events []thread.Event) {
	if !m.current() && m.open(events[0].ID) != nil {
		return
	}
	if m.lines >= maxLines && m.rotate() != nil {
		return
	}
	m.buf = m.buf[:0]
	for _, e := range events {
		m.buf = append(e.AppendLine(m.buf), '\n')
	}
	n, err := m.f.Write(m.buf)
	m.size += int64(n)
	if err != nil {
		_ = m.Close() // the next append finds the torn line and catches up
	} else {
		m.lines += len(events)
	}
	if cap(m.buf) > 1<<20 {
		m.buf = nil
	}
}

// Join is Append for one of several writers that take turns: what another has
// written for us, when it caught up, is left out.
func (m *Mirror) Join(events []thread.Event) {
	_ = m.Close() // another may have written since
	if m.open(events[0].ID) != nil {
		return
	}
	for len(events) > 0 && events[0].ID <= m.last {
		events = events[1:]
	}
	if len(events) > 0 {
		m.Append(events)
	}
}

// Close closes the file.
func (m *Mirror) Close() error {
	if m.f == nil {
		return nil
	}
	f := m.f
	m.f = nil
	return f.Close()
}

func (m *Mirror) path() string { return filepath.Join(m.dir, "events.jsonl") }

// current reports whether the open file is still the one with the name, and
// counts the lines that another program appended to it.
func (m *Mirror) current() bool {
	if m.f == nil {
		return false
	}
	ours, err := m.f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(m.path())
	if err != nil || !os.SameFile(ours, named) || ours.Size() < m.size {
		_ = m.Close()
		return false
	}
	if ours.Size() > m.size {
		s, err := scan(io.NewSectionReader(m.f, m.size, ours.Size()-m.size))
		if err != nil || s.torn {
			_ = m.Close()
			return false
		}
		m.lines, m.size = m.lines+s.lines, ours.Size()
	}
	return true
}

// open counts the lines and writes those that are missing before an id.
func (m *Mirror) open(before int64) error {
	f, err := os.OpenFile(m.path(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	s, err := scan(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	m.f, m.lines, m.size, m.last = f, s.lines, s.bytes, s.last
	if s.torn { // half a line stays as it is: another program may be writing it
		if _, err := f.WriteString("\n"); err != nil {
			return errors.Join(err, m.Close())
		}
		m.lines, m.size = m.lines+1, m.size+1
	}
	if s.lines == 0 && before > 1 && m.rotated() {
		return nil // the lines before are in a rotated file
	}
	if err := m.catchUp(s.last, before); err != nil {
		return errors.Join(err, m.Close())
	}
	return nil
}

func (m *Mirror) rotated() bool {
	old, _ := filepath.Glob(filepath.Join(m.dir, "events-*.jsonl"))
	return len(old) > 0
}

func (m *Mirror) catchUp(after, before int64) error {
	w := bufio.NewWriter(m.f)
	err := m.missing(after, before, func(e thread.Event) error {
		m.buf = append(e.AppendLine(m.buf[:0]), '\n')
		m.lines, m.size = m.lines+1, m.size+int64(len(m.buf))
		_, err := w.Write(m.buf)
		return err
	})
	return errors.Join(err, w.Flush())
}

type scanned struct {
	lines int
	bytes int64
	last  int64 // greatest event id of a whole line
	torn  bool  // the last line has no end
}

// scan reads lines in pieces, because one may hold a megabyte.
func scan(from io.Reader) (scanned, error) {
	var s scanned
	r := bufio.NewReaderSize(from, 64<<10)
	var id int64
	for begin := true; ; {
		b, err := r.ReadSlice('\n')
		s.bytes += int64(len(b))
		if begin && len(b) > 0 {
			id = idOf(b)
		}
		switch {
		case err == nil:
			s.lines, s.last, begin, s.torn = s.lines+1, max(s.last, id), true, false
		case errors.Is(err, bufio.ErrBufferFull):
			begin, s.torn = false, true
		case errors.Is(err, io.EOF):
			s.torn = s.torn || len(b) > 0
			return s, nil
		default:
			return s, err
		}
	}
}

// idOf reads the id from the beginning of a line; 0 when it is not one.
func idOf(line []byte) int64 {
	rest, ok := bytes.CutPrefix(line, []byte(`{"id":`))
	digits, _, found := bytes.Cut(rest, []byte(","))
	if !ok || !found {
		return 0
	}
	id, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// rotate renames the file; a stamp that is taken gets a number, so that two
// rotations within a second lose nothing.
func (m *Mirror) rotate() error {
	if err := m.Close(); err != nil {
		return err
	}
	base := filepath.Join(m.dir, "events-"+time.Now().UTC().Format("20060102-150405"))
	to := base + ".jsonl"
	for i := 2; ; i++ {
		if _, err := os.Lstat(to); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		to = base + "-" + strconv.Itoa(i) + ".jsonl"
	}
	if err := os.Rename(m.path(), to); err != nil {
		return err
	}
	f, err := os.OpenFile(m.path(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	m.f, m.lines, m.size = f, 0, 0
	return nil
}
