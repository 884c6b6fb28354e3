package db

import (
	"bufio"
	"context"
	"encoding/json"
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

// mirror appends committed events to events.jsonl. It is opened with the first
// append, which also catches up on lines a crash left out; an error drops lines
// and never an event, since the database is the truth.
type mirror struct {
	dir   string
	f     *os.File
	lines int
	buf   []byte
}

func (m *mirror) append(d *DB, events []thread.Event) {
	if m.f == nil && m.open(d, events[0].ID) != nil {
		return
	}
	if m.lines > maxLines && m.rotate() != nil {
		return
	}
	m.buf = m.buf[:0]
	for _, e := range events {
		m.buf = append(e.AppendLine(m.buf), '\n')
	}
	if _, err := m.f.Write(m.buf); err == nil {
		m.lines += len(events)
	}
	if cap(m.buf) > 1<<20 {
		m.buf = nil
	}
}

func (m *mirror) path() string { return filepath.Join(m.dir, "events.jsonl") }

// open counts the lines and writes those that are missing before upto.
func (m *mirror) open(d *DB, upto int64) error {
	f, err := os.OpenFile(m.path(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	lines, last, torn, err := scanLines(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	m.f, m.lines = f, lines
	if torn {
		if _, err := f.WriteString("\n"); err != nil {
			return errors.Join(err, m.close())
		}
	}
	if last == 0 && lines == 0 && upto > 1 && m.rotated() {
		return nil // the lines before are in a rotated file
	}
	return m.catchUp(d, last, upto)
}

func (m *mirror) rotated() bool {
	old, _ := filepath.Glob(filepath.Join(m.dir, "events-*.jsonl"))
	return len(old) > 0
}

func (m *mirror) catchUp(d *DB, last, upto int64) error {
	rows, err := d.conn.QueryContext(context.Background(), "SELECT "+Columns+" FROM events WHERE id > ? AND id < ? ORDER BY id", last, upto)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(m.f)
	for rows.Next() {
		e, err := Scan(rows.Scan)
		if err != nil {
			return errors.Join(err, rows.Close())
		}
		m.buf = append(e.AppendLine(m.buf[:0]), '\n')
		if _, err := w.Write(m.buf); err != nil {
			return errors.Join(err, rows.Close())
		}
		m.lines++
	}
	return errors.Join(rows.Err(), rows.Close(), w.Flush())
}

// scanLines counts lines and reads the id of the last whole one.
func scanLines(f *os.File) (lines int, last int64, torn bool, err error) {
	r := bufio.NewReaderSize(f, 64<<10)
	var whole []byte
	for {
		b, err := r.ReadBytes('\n')
		if len(b) > 0 && b[len(b)-1] == '\n' {
			lines, whole = lines+1, b
		} else if len(b) > 0 {
			torn = true
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, 0, false, err
		}
	}
	var v struct{ ID int64 }
	if json.Unmarshal(whole, &v) == nil {
		last = v.ID
	}
	return lines, last, torn, nil
}

// rotate renames the file; a stamp that is taken gets a number, so that two
// rotations within a second lose nothing.
func (m *mirror) rotate() error {
	if err := m.close(); err != nil {
		return err
	}
	base := filepath.Join(m.dir, "events-"+time.Now().UTC().Format("20060102-150405"))
	for i := 1; ; i++ {
		to := base + ".jsonl"
		if i > 1 {
			to = base + "-" + strconv.Itoa(i) + ".jsonl"
		}
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := os.Rename(m.path(), to); err != nil {
			return err
		}
		break
	}
	f, err := os.OpenFile(m.path(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	m.f, m.lines = f, 0
	return err
}

func (m *mirror) close() error {
	if m.f == nil {
		return nil
	}
	f := m.f
	m.f = nil
	return f.Close()
}
