package repair

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

// salvage puts a new database in the place of a damaged one:
//
//	events.db ----read----> .salvage-*/events.db   rows, events, a new chain
//	events.db ---rename---> events.db.corrupt-<stamp>
//	.salvage-*/events.db ---rename---> events.db
//
// Cut off between the renames, the next run begins with what was put aside.
func (w *work) salvage(ctx context.Context, a *snapshot.Agent, d *snapshot.DB) (err error) {
	path := filepath.Join(d.Dir, "events.db")
	old, aside := path, false
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if old, aside = newestAside(d.Dir), true; old == "" && !record.HasLines(d.Dir) {
			return nil // there never was one, and nothing to make one of
		}
	}
	tmp, err := os.MkdirTemp(d.Dir, ".salvage-")
	if err != nil {
		return fmt.Errorf("salvage: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if _, err := schema.Create(tmp); err != nil {
		return fmt.Errorf("salvage: %w", err)
	}
	if old == "" { // all there is are the lines
		if old, err = empty(tmp); err != nil {
			return fmt.Errorf("salvage: %w", err)
		}
	}
	told, err := w.fill(ctx, a, d, old, filepath.Join(tmp, "events.db"))
	if err != nil {
		return fmt.Errorf("salvage: %w", err)
	}
	name := filepath.Base(old)
	if !aside {
		name = "events.db.corrupt-" + w.stamp()
		for _, side := range []string{"-wal", "-shm", ""} { // the file last: it names the others
			if err := ignoreGone(os.Rename(path+side, filepath.Join(d.Dir, name+side))); err != nil {
				return fmt.Errorf("put database aside: %w", err)
			}
		}
	}
	if err := os.Rename(filepath.Join(tmp, "events.db"), path); err != nil {
		return fmt.Errorf("name database: %w", err)
	}
	if old = filepath.Join(d.Dir, name); exists(old) {
		told += "; the damaged one is " + name
	}
	if w.stopped {
		told, w.stopped = told+"; whether the agent was started is lost: 'agentctl start "+d.Agent+"'", false
	}
	w.did(d, "%s", told)
	return schema.SyncDir(d.Dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// empty makes a database with nothing in it below dir.
func empty(dir string) (string, error) {
	dir = filepath.Join(dir, "none")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	_, err := schema.Create(dir)
	return filepath.Join(dir, "events.db"), err
}

func newestAside(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	newest := ""
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, "events.db.corrupt-") && !strings.HasSuffix(n, "-wal") && !strings.HasSuffix(n, "-shm") {
			newest = filepath.Join(dir, n) // the stamps sort by time
		}
	}
	return newest
}

// fill copies what can be read of old into a new database and says what it was.
func (w *work) fill(ctx context.Context, a *snapshot.Agent, d *snapshot.DB, old, fresh string) (told string, err error) {
	from, closeOld, err := read(ctx, old)
	if err != nil {
		return "", err
	}
	defer closeOld()
	to, done, err := change(ctx, fresh)
	if err != nil {
		return "", err
	}
	kept := false
	defer func() { err = errors.Join(err, done(kept)) }()
	tables, err := snapshot.Schema()
	if err != nil {
		return "", err
	}
	lost := []string{}
	for _, t := range tables {
		if t.Kind != "table" || t.Name == "events" || t.Name == "x_chain" {
			continue
		}
		whole, err := copyTable(ctx, from, to, t)
		if err != nil {
			return "", err
		}
		if !whole {
			lost = append(lost, t.Name)
		}
	}
	e, err := rescue(ctx, from, d)
	if err != nil {
		return "", err
	}
	if err := e.write(ctx, to); err != nil {
		return "", err
	}
	if err := w.account(ctx, to, a, d); err != nil {
		return "", err
	}
	gone, err := copyLater(ctx, from, to, d.IsInbox()) // the format is known by now
	if err != nil {
		return "", err
	}
	lost = append(lost, gone...)
	if err := raiseSequence(ctx, to, from); err != nil {
		return "", err
	}
	told = fmt.Sprintf("made a new database of %d events: %d as the chain has them, %d of those from events.jsonl, %d unproved", len(e.events), e.proved, e.fromLines, len(e.events)-e.proved)
	if len(lost) > 0 {
		told += "; not all rows of " + strings.Join(lost, ", ") + " could be read"
	}
	kept = true
	return told, nil
}

// copyTable copies the rows of a table, from both ends when there is a hole in
// the middle; false when some could not be read. A column that the old one lacks, of an
// earlier build, gets its default. Errors are of the new database.
func copyTable(ctx context.Context, from, to *sql.Conn, t snapshot.Object) (whole bool, err error) {
	var list []string
	_ = rowsOf(ctx, from, "SELECT name FROM pragma_table_info('"+t.Name+"')", 1, func(r []any) { // unreadable: the rows are as well
		if name, ok := r[0].(string); ok && slices.Contains(t.Columns, name) {
			list = append(list, name)
		}
	})
	if len(list) == 0 {
		return false, nil
	}
	columns := strings.Join(list, ", ")
	insert := fmt.Sprintf("INSERT OR IGNORE INTO %s(%s) VALUES(%s)", t.Name, columns, strings.TrimSuffix(strings.Repeat("?,", len(list)), ","))
	whole = true
	for _, order := range []string{"", " ORDER BY 1 DESC"} {
		readErr := rowsOf(ctx, from, "SELECT "+columns+" FROM "+t.Name+order, len(list), func(row []any) {
			if _, e := to.ExecContext(ctx, insert, row...); e != nil && !constraint(e) {
				err = errors.Join(err, e)
			}
		})
		if readErr == nil || err != nil {
			return whole, err
		}
		whole = false
	}
	return whole, err
}

// constraint reports whether a row broke a rule of its table: a row that a flipped
// bit made impossible is none.
func constraint(err error) bool { return strings.Contains(err.Error(), "constraint failed") }

func rowsOf(ctx context.Context, c *sql.Conn, query string, n int, fn func([]any)) error {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	row, at := make([]any, n), make([]any, n)
	for i := range row {
		at[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(at...); err != nil {
			return err
		}
		fn(slices.Clone(row))
	}
	return rows.Err()
}

// raiseSequence keeps every id that anything refers to from being used again.
func raiseSequence(ctx context.Context, to, from *sql.Conn) error {
	var before int64
	_ = from.QueryRowContext(ctx, "SELECT seq FROM sqlite_sequence WHERE name = 'events'").Scan(&before) // 0 when it cannot be read
	_, err := to.ExecContext(ctx, `INSERT INTO sqlite_sequence(name, seq) SELECT 'events', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'events')`)
	if err != nil {
		return err
	}
	_, err = to.ExecContext(ctx, `UPDATE sqlite_sequence SET seq = MAX(seq, ?, (SELECT COALESCE(MAX(id),0) FROM x_ack), (SELECT COALESCE(MAX(inbox_id),0) FROM x_fate),
		(SELECT COALESCE(MAX(event_id),0) FROM x_dedupe), (SELECT COALESCE(MAX(event_id),0) FROM x_delivery)) WHERE name = 'events'`, before)
	return err
}
