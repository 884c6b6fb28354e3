package repair

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the engine

	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

// change opens a database in one transaction; done ends it, kept or not, and
// everything is on disk and in the one file when it returns.
func change(ctx context.Context, path string) (*sql.Conn, func(keep bool) error, error) {
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=rw&_pragma=busy_timeout(5000)&_pragma=synchronous(full)"}).String()
	s, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, nil, err
	}
	s.SetMaxOpenConns(1)
	c, err := s.Conn(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("change database: %w", err), c.Close(), s.Close())
	}
	return c, func(keep bool) error {
		how := "ROLLBACK"
		if keep {
			how = "COMMIT"
		}
		_, err := c.ExecContext(context.WithoutCancel(ctx), how)
		return errors.Join(err, c.Close(), s.Close()) // the last close writes the log into the file
	}, nil
}

// read answers a consistent view of a database and what ends it.
func read(ctx context.Context, path string) (*sql.Conn, func(), error) {
	return snapshot.Open(ctx, path, true) // not immutable: a log beside a damaged file counts
}

// mirror writes events.jsonl anew when it says something else than the database.
// The old one and its parts keep their bytes under another name.
func (w *work) mirror(ctx context.Context, d *snapshot.DB) error {
	if !record.Compare(d).Differs() {
		return nil
	}
	parts, err := filepath.Glob(filepath.Join(record.Escape(d.Dir), "events*.jsonl"))
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := os.Rename(p, p+".replaced-"+w.stamp()); err != nil {
			return fmt.Errorf("put events.jsonl aside: %w", err)
		}
	}
	if err := writeLines(ctx, d.Dir); err != nil {
		return fmt.Errorf("write events.jsonl: %w", err)
	}
	w.did(d, "wrote events.jsonl anew; the old one is events.jsonl.replaced-%s", w.stamp())
	return nil
}

func writeLines(ctx context.Context, dir string) (err error) {
	c, done, err := snapshot.Open(ctx, filepath.Join(dir, "events.db"), false)
	if err != nil {
		return err
	}
	defer done()
	tmp, err := os.CreateTemp(dir, ".events.jsonl.")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreGone(os.Remove(tmp.Name()))) }()
	out, buf := bufio.NewWriter(tmp), []byte(nil)
	rows, err := c.QueryContext(ctx, "SELECT "+db.Columns+" FROM events ORDER BY id")
	if err != nil {
		return errors.Join(err, tmp.Close())
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		e, err := db.Scan(rows.Scan)
		if err != nil {
			return errors.Join(err, tmp.Close())
		}
		buf = append(e.AppendLine(buf[:0]), '\n')
		if _, err := out.Write(buf); err != nil {
			return errors.Join(err, tmp.Close())
		}
	}
	if err := errors.Join(rows.Err(), out.Flush(), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), filepath.Join(dir, "events.jsonl"))
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (w *work) stamp() string { return w.o.Now.UTC().Format("20060102-150405") }
