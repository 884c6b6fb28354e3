package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/thread"
)

// Agrees reports whether a line says what the database says. A line of the
// external tool has its own clock's time; one past every id the database has
// known was lost with power, and the database is right.
func Agrees(d *snapshot.DB, l thread.Event) bool {
	e, ok := d.Event(l.ID)
	if !ok {
		return l.ID > max(d.Head(), d.Sequence)
	}
	l.CreatedAt = e.CreatedAt
	return !e.Plain || l.Hash(nil) == e.Sum
}

// Lines calls fn for every whole line of events.jsonl in dir, the rotated parts
// first, in the order they were written. Half a line, as a crash leaves it, is
// passed over.
func Lines(dir string, fn func(thread.Event) error) error {
	parts, err := filepath.Glob(filepath.Join(Escape(dir), "events-*.jsonl"))
	if err != nil {
		return err
	}
	slices.Sort(parts)
	for _, p := range append(parts, filepath.Join(dir, "events.jsonl")) {
		if err := linesOf(p, fn); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Escape makes a directory name mean itself in a pattern.
func Escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

func linesOf(path string, fn func(thread.Event) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil { // what has no end is not a line
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var l struct {
			ID        int64   `json:"id"`
			CreatedAt string  `json:"created_at"`
			Source    string  `json:"source"`
			Type      string  `json:"type"`
			Subtype   *string `json:"subtype"`
			Content   string  `json:"content"`
		}
		if json.Unmarshal(line, &l) != nil || l.ID <= 0 {
			continue
		}
		if err := fn(thread.Event{ID: l.ID, CreatedAt: l.CreatedAt, Source: l.Source, Type: l.Type, Subtype: l.Subtype, Content: l.Content}); err != nil {
			return err
		}
	}
}
