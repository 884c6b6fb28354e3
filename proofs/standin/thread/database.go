package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
)

const schema = `CREATE TABLE events (
      id         INTEGER PRIMARY KEY AUTOINCREMENT,
      created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
      source     TEXT    NOT NULL,
      type       TEXT    NOT NULL,
      subtype    TEXT,
      content    TEXT    NOT NULL
    );
CREATE INDEX idx_events_source ON events(source);
CREATE INDEX idx_events_type   ON events(type);
CREATE TABLE subscriptions (
      consumer_id  TEXT NOT NULL,
      handler_cmd  TEXT NOT NULL,
      filter       TEXT,
      PRIMARY KEY (consumer_id)
    );
CREATE TABLE consumer_progress (
      consumer_id   TEXT    NOT NULL PRIMARY KEY,
      last_acked_id INTEGER NOT NULL DEFAULT 0,
      updated_at    TEXT    NOT NULL
    );`

// thread is an open thread directory.
type thread struct {
	dir string
	db  *sql.DB
}

var background = context.Background()

func openThread(dir string) (*thread, error) {
	name := "file:" + (&escaper).Replace(filepath.Join(dir, "events.db")) +
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_dqs=0"
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := db.PingContext(background); err != nil {
		_ = db.Close()
		return nil, plain(err)
	}
	return &thread{dir, db}, nil
}

// escaper makes a path fit for a file: URI.
var escaper = *strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

func (t *thread) close() { _ = t.db.Close() }

func (t *thread) exec(query string, args ...any) error {
	_, err := t.db.ExecContext(background, query, args...)
	return plain(err)
}

// plain is the database's own word for an error.
func plain(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	if e.Code()&0xff == 5 {
		return errors.New("database is locked")
	}
	return errors.New(e.Error())
}

// event is a row of events.
type event struct {
	id                              int64
	createdAt, source, typ, content string
	subtype                         *string
}

// line is the event as peek and pop print it.
func (e event) line() string {
	sub := "null"
	if e.subtype != nil {
		sub = quote(*e.subtype)
	}
	return fmt.Sprintf(`{"id":%d,"created_at":%s,"source":%s,"type":%s,"subtype":%s,"content":%s}`,
		e.id, quote(e.createdAt), quote(e.source), quote(e.typ), sub, quote(e.content))
}

// quote writes a JSON string as that runtime does: only what must be escaped is.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' && strings.ContainsRune("\b\f\n\r\t", r):
			b.WriteByte('\\')
			b.WriteByte("btn?fr"[r-'\b'])
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// events reads what follows an id, through a filter that is spliced in as it is.
func (t *thread) events(after, limit int64, filter string) ([]event, error) {
	where := "id > ?"
	if filter != "" {
		where += " AND (" + filter + ")"
	}
	//nolint:gosec // the tool splices the filter in; that is what is stood in for
	rows, err := t.db.QueryContext(background, "SELECT id, created_at, source, type, subtype, content FROM events WHERE "+where+" ORDER BY id ASC LIMIT ?", after, limit)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = rows.Close() }()
	var out []event
	for rows.Next() {
		var e event
		if err := rows.Scan(&e.id, &e.createdAt, &e.source, &e.typ, &e.subtype, &e.content); err != nil {
			return nil, plain(err)
		}
		out = append(out, e)
	}
	return out, plain(rows.Err())
}

// printEvents prints all or, after an error, nothing.
func printEvents(out io.Writer, events []event, err error) error {
	if err != nil {
		return err
	}
	for _, e := range events {
		fmt.Fprintln(out, e.line())
	}
	return nil
}

// subscription is a row of subscriptions with its progress.
type subscription struct {
	consumer, handler string
	filter            *string
	acked             int64
	updatedAt         *string
}

func (t *thread) subscriptions() ([]subscription, error) {
	rows, err := t.db.QueryContext(background, `SELECT s.consumer_id, s.handler_cmd, s.filter, COALESCE(p.last_acked_id, 0), p.updated_at
		FROM subscriptions s LEFT JOIN consumer_progress p ON p.consumer_id = s.consumer_id ORDER BY s.rowid`)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = rows.Close() }()
	var out []subscription
	for rows.Next() {
		var s subscription
		if err := rows.Scan(&s.consumer, &s.handler, &s.filter, &s.acked, &s.updatedAt); err != nil {
			return nil, plain(err)
		}
		out = append(out, s)
	}
	return out, plain(rows.Err())
}

// find answers one subscription, nil when there is none.
func (t *thread) find(consumer string) (*subscription, error) {
	all, err := t.subscriptions()
	for i := range all {
		if all[i].consumer == consumer {
			return &all[i], err
		}
	}
	return nil, err
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

func fileStamp() string { return time.Now().UTC().Format("20060102-150405") }

// rotate renames the log that an earlier command left, as each push and dispatch
// does first.
func (t *thread) rotate() {
	log := filepath.Join(t.dir, "logs", "thread.log")
	if st, err := os.Stat(log); err == nil && st.Size() > 0 {
		_ = os.Rename(log, filepath.Join(t.dir, "logs", "thread-"+fileStamp()+".log"))
	}
}

func (t *thread) log(level, format string, a ...any) {
	if err := os.MkdirAll(filepath.Join(t.dir, "logs"), 0o755); err != nil {
		return
	}
	f, err := os.OpenFile(filepath.Join(t.dir, "logs", "thread.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	fmt.Fprintf(f, "[%s] [%s] %s\n", now(), level, fmt.Sprintf(format, a...))
}
