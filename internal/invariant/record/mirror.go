package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/thread"
)

// Mirror is how events.jsonl stands to its database.
type Mirror struct {
	Wrong []Flaw // lines that say something else
	// Ahead is the first event with a line that the database has never known; 0:
	// none. Our lines follow the commit, so commits were lost: with a -wal file,
	// or with power.
	Ahead int64
	// Behind says what has no line; First is the first such event. Lines before
	// the first that is there may have been rotated away.
	Behind string
	First  int64
}

// Compare reads events.jsonl and its rotated parts next to a database.
func Compare(d *snapshot.DB) Mirror {
	var m Mirror
	if d.Unread["events"] {
		return m
	}
	told, oldest := make(map[int64]bool, len(d.Events)), int64(0)
	err := Lines(d.Dir, func(l thread.Event) error {
		told[l.ID] = true
		if oldest == 0 || l.ID < oldest {
			oldest = l.ID
		}
		if Agrees(d, l) {
			if _, ok := d.Event(l.ID); !ok && (m.Ahead == 0 || l.ID < m.Ahead) {
				m.Ahead = l.ID
			}
			return nil
		}
		said := "events.jsonl has another event %d than the database"
		if _, ok := d.Event(l.ID); !ok {
			said = "events.jsonl has event %d, and the database has not"
		}
		m.Wrong = append(m.Wrong, Flaw{l.ID, fmt.Sprintf(said, l.ID)})
		return nil
	})
	if err != nil {
		m.Behind = "events.jsonl cannot be read: " + err.Error()
		return m
	}
	n := 0
	for _, e := range d.Events {
		if e.ID < oldest || told[e.ID] {
			continue
		}
		if n++; n == 1 {
			m.First = e.ID
		}
	}
	if n == 0 {
		return m
	}
	m.Behind = fmt.Sprintf("events.jsonl has no line for %d of the events, the first is %d", n, m.First)
	if _, err := os.Stat(filepath.Join(d.Dir, "events.jsonl")); errors.Is(err, fs.ErrNotExist) {
		m.Behind = "events.jsonl is missing"
	}
	return m
}

// Differs reports whether events.jsonl should be written again. One that knows more
// than the database is evidence, and is left alone.
func (m Mirror) Differs() bool { return m.Ahead == 0 && (len(m.Wrong) > 0 || m.Behind != "") }

// HasLines reports whether events.jsonl in dir, or a part of it, has one complete line.
func HasLines(dir string) bool {
	found := errors.New("there is one")
	return errors.Is(Lines(dir, func(thread.Event) error { return found }), found)
}
