package mirror

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/theclaw/agents/internal/thread"
)

// Rewrite replaces lines in events.jsonl and its rotated parts: now answers the event
// to write instead of the line with that id. A part without such a line is left alone;
// another is replaced as a whole, so that a crash leaves the old or the new one.
func (m *Mirror) Rewrite(now func(id int64) (thread.Event, bool, error)) error {
	if err := m.Close(); err != nil {
		return err
	}
	parts, err := filepath.Glob(filepath.Join(m.dir, "events-*.jsonl"))
	if err != nil {
		return err
	}
	for _, p := range append(parts, m.path()) {
		if err := rewrite(p, now); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func rewrite(path string, now func(id int64) (thread.Event, bool, error)) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.CreateTemp(filepath.Dir(path), ".events.jsonl.")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(to.Name()) }() // gone already when it has its name
	r, w, changed := bufio.NewReaderSize(from, 64<<10), bufio.NewWriter(to), false
	for {
		line, readErr := r.ReadBytes('\n')
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return errors.Join(readErr, to.Close())
		}
		if len(line) > 0 {
			e, erased, err := now(whose(line))
			if err != nil {
				return errors.Join(err, to.Close())
			}
			if erased {
				line, changed = append(e.AppendLine(nil), '\n'), true
			}
			if _, err := w.Write(line); err != nil {
				return errors.Join(err, to.Close())
			}
		}
		if readErr != nil {
			break
		}
	}
	if err := errors.Join(w.Flush(), to.Sync(), to.Close()); err != nil || !changed {
		return err
	}
	return os.Rename(to.Name(), path)
}

// whose is the id of a line, also of half a one and of one that another program
// wrote with its fields in another order; 0 when it has none.
func whose(line []byte) int64 {
	if id := idOf(line); id != 0 {
		return id
	}
	var l struct {
		ID int64 `json:"id"`
	}
	if json.Unmarshal(line, &l) != nil {
		return 0
	}
	return l.ID
}
