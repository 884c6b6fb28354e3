package repair

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// session gives a conversation back its session, when an epoch has begun in it and its row is
// lost: the model would see what is before the epoch. Its key is what the inbox knows; the
// settings that people made for it are lost.
func (w *work) session(ctx context.Context, a *snapshot.Agent, d *snapshot.DB) error {
	epochs := d.OwnEpochs()
	if d.Session != nil || len(epochs) == 0 || len(d.Damage) > 0 {
		return nil
	}
	newest, s := epochs[len(epochs)-1], snapshot.Session{}
	for _, o := range a.Inbox.Origins {
		if o.Thread == d.Thread {
			s.Key = o.Key
		}
	}
	for _, entry := range a.Inbox.Listed {
		if entry.Thread == d.Thread {
			s = entry
		}
	}
	if s.Key == "" {
		return nil // the check that follows reports it
	}
	if newest.ID != "" {
		s.Epoch = newest.ID
	}
	err := w.write(ctx, d, schema.Session, func(c *sql.Conn) error {
		_, err := c.ExecContext(ctx, "INSERT INTO x_session(one, key, epoch, epoch_from, title, archived) VALUES(1,?,?,?,?,?)", s.Key, s.Epoch, newest.EventID, s.Title, s.Archived)
		return err
	})
	if err != nil {
		return fmt.Errorf("write session: %w", err)
	}
	w.did(d, "wrote the session anew from its epoch at event %d; what people had set for it is lost", newest.EventID)
	return nil
}

// list makes the list of sessions say what the conversations say.
func (w *work) list(ctx context.Context, a *snapshot.Agent) error {
	unlisted := a.Unlisted()
	if len(unlisted) == 0 || len(a.Inbox.Damage) > 0 {
		return nil
	}
	err := w.write(ctx, a.Inbox, schema.Origins, func(c *sql.Conn) error {
		for _, s := range unlisted {
			if _, err := c.ExecContext(ctx, `INSERT OR REPLACE INTO x_sessions(thread, key, key_folded, epoch, title, archived, last_at, messages)
				VALUES(?,?,?,?,?,?,?, (SELECT COUNT(*) FROM x_fate WHERE thread = ?))`,
				s.Thread, s.Key, strings.ToLower(s.Key), s.Epoch, s.Title, s.Archived, lastAt(a, s.Thread), s.Thread); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write list of sessions: %w", err)
	}
	for _, s := range unlisted {
		w.did(a.Inbox, "wrote the entry of %s in the list of sessions", s.Thread)
	}
	return nil
}

// lastAt is when the newest event of a conversation was recorded, in milliseconds; 0: there is none.
func lastAt(a *snapshot.Agent, id string) int64 {
	for _, d := range a.Threads {
		if d.Thread == id && len(d.Events) > 0 {
			return thread.ParseStamp(d.Events[len(d.Events)-1].CreatedAt).UnixMilli()
		}
	}
	return 0
}

// write changes a database that has the tables of sessions, or gets them.
func (w *work) write(ctx context.Context, d *snapshot.DB, tables []string, fn func(*sql.Conn) error) error {
	c, done, err := change(ctx, filepath.Join(d.Dir, "events.db"))
	if err != nil {
		return err
	}
	if err := makeSessions(ctx, c, tables); err != nil {
		return errors.Join(err, done(false))
	}
	if err := fn(c); err != nil {
		return errors.Join(err, done(false))
	}
	return done(true)
}

// makeSessions makes tables of the format that has sessions.
func makeSessions(ctx context.Context, c *sql.Conn, tables []string) error {
	return makeTables(ctx, c, tables, schema.FormatSessions)
}

// makeTables makes tables that a database has since a format.
func makeTables(ctx context.Context, c *sql.Conn, tables []string, format int) error {
	for _, t := range tables {
		if _, err := c.ExecContext(ctx, t); err != nil {
			return err
		}
	}
	_, err := c.ExecContext(ctx, schema.RaiseFormat, format)
	return err
}

// later are tables that only a database with rows of them has, and its format.
type later struct {
	names, tables []string
	format        int
}

// laterTables are those of an inbox, and of a conversation. That of what was erased is written with the events.
func laterTables(inbox bool) []later {
	if !inbox {
		return []later{{[]string{"x_session"}, schema.Session, schema.FormatSessions}}
	}
	return []later{
		{[]string{"x_origin", "x_sessions"}, schema.Origins, schema.FormatSessions},
		{[]string{"x_process"}, schema.Process, schema.FormatTools},
		{[]string{"x_media"}, []string{schema.Media}, schema.FormatMedia},
	}
}

// copyLater copies the tables that only some databases have. It answers those of which not all rows could be read.
func copyLater(ctx context.Context, from, to *sql.Conn, inbox bool) (lost []string, err error) {
	for _, l := range laterTables(inbox) {
		there := false
		_ = rowsOf(ctx, from, "SELECT 1 FROM sqlite_master WHERE name IN ('"+strings.Join(l.names, "','")+"')", 1, func([]any) { there = true }) // unreadable: the rows are as well
		if !there {
			continue
		}
		if err := makeTables(ctx, to, l.tables, l.format); err != nil {
			return nil, err
		}
		for _, name := range l.names {
			t := snapshot.Object{Name: name}
			if err := rowsOf(ctx, to, "SELECT name FROM pragma_table_info('"+name+"')", 1, func(r []any) { t.Columns = append(t.Columns, r[0].(string)) }); err != nil {
				return nil, err
			}
			whole, err := copyTable(ctx, from, to, t)
			if err != nil {
				return nil, err
			}
			if !whole {
				lost = append(lost, name)
			}
		}
	}
	return lost, nil
}
