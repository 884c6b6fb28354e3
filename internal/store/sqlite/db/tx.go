package db

import (
	"maps"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// Tx is the database as an operation sees it.
type Tx struct {
	d      *DB
	events []thread.Event
}

// UUID of the database.
func (t *Tx) UUID() string { return t.d.uuid }

// HasSessions reports whether the database has the tables of schema.Origins, when it is an
// inbox, or of schema.Session. Without them nothing may read them: a database of an
// earlier build is opened and read without a write.
func (t *Tx) HasSessions() bool { return t.d.format >= schema.FormatSessions }

// MakeOrigins makes the tables of schema.Origins in an inbox that does not have them.
func (t *Tx) MakeOrigins() error { return t.makeSessions(schema.Origins) }

// MakeSession makes the table of schema.Session in a conversation that does not have it.
func (t *Tx) MakeSession() error { return t.makeSessions(schema.Session) }

func (t *Tx) makeSessions(tables []string) error {
	if t.HasSessions() {
		return nil
	}
	return t.raise(schema.FormatSessions, tables...)
}

// HasProcesses reports whether the inbox has the tables of schema.Process. Its format alone does not
// say so: other tables came with the same one.
func (t *Tx) HasProcesses() (bool, error) {
	if t.d.format < schema.FormatTools {
		return false, nil
	}
	return t.Row("SELECT 1 FROM sqlite_master WHERE name = 'x_process'", nil, new(int64))
}

// MakeProcesses makes the tables of schema.Process in an inbox that does not have them, and those
// that came with the formats before: who finds the newer format relies on them.
func (t *Tx) MakeProcesses() error {
	if has, err := t.HasProcesses(); has || err != nil {
		return err
	}
	return t.raise(schema.FormatTools, slices.Concat(schema.Origins, schema.Process)...)
}

// MarkExternal raises the format of a conversation with a step whose result is external. The table of the format
// before is made: who finds the newer format relies on it.
func (t *Tx) MarkExternal() error {
	if t.d.format >= schema.FormatExternal {
		return nil
	}
	return t.raise(schema.FormatExternal, schema.Session...)
}

// HasMedia reports whether the inbox has the table of schema.Media.
func (t *Tx) HasMedia() bool { return t.d.format >= schema.FormatMedia }

// MakeMedia makes the table of schema.Media in an inbox that does not have it, and those of the formats before: who
// finds the newer format relies on them.
func (t *Tx) MakeMedia() error {
	if t.HasMedia() {
		return nil
	}
	return t.raise(schema.FormatMedia, append(slices.Clone(schema.Origins), schema.Media)...)
}

// raise makes tables that came with a format, and raises the format of the database to it
// where it is lower.
func (t *Tx) raise(format int, tables ...string) error {
	for _, table := range tables {
		if _, err := t.Exec(table); err != nil {
			return err
		}
	}
	if _, err := t.Exec(schema.RaiseFormat, format); err != nil {
		return err
	}
	t.d.format = max(t.d.format, format)
	return nil
}

// maxStmts bounds the statements kept prepared; filters make texts without end.
const maxStmts = 256

// stmt answers a prepared statement, and whether to close it after its use.
func (d *DB) stmt(q string) (s conn.Stmt, once bool, err error) {
	if s, ok := d.stmts[q]; ok {
		s.used = d.batches
		return s.Stmt, false, nil
	}
	if s, err = d.conn.Prepare(q); err != nil {
		return nil, false, d.note(err)
	}
	if len(d.stmts) >= maxStmts {
		return s, true, nil
	}
	d.stmts[q] = &prepared{s, d.batches}
	return s, false, nil
}

// prepared is a statement that is kept, and the batch that used it last.
type prepared struct {
	conn.Stmt

	used int
}

// Prepared answers the texts of the statements kept, for tests of their plans.
func (t *Tx) Prepared() []string { return slices.Sorted(maps.Keys(t.d.stmts)) }

// Exec runs a statement and answers the rows it changed.
func (t *Tx) Exec(q string, args ...any) (int64, error) {
	r, err := t.d.run(q, args)
	return r.Changes, err
}

func (d *DB) run(q string, args []any) (conn.Result, error) {
	s, once, err := d.stmt(q)
	if err != nil {
		return conn.Result{}, err
	}
	if once {
		defer func() { _ = s.Close() }() // it says again what the statement said
	}
	r, err := s.Exec(args)
	return r, d.note(err)
}

// Row scans the first row of a query; false when there is none.
func (t *Tx) Row(q string, args []any, dest ...any) (bool, error) {
	s, once, err := t.d.stmt(q)
	if err != nil {
		return false, err
	}
	if once {
		defer func() { _ = s.Close() }() // it says again what the statement said
	}
	ok, err := s.Row(args, dest)
	return ok, t.d.note(err)
}

// Each calls fn for every row of a query.
func (t *Tx) Each(q string, args []any, fn func(scan func(...any) error) error) error {
	s, once, err := t.d.stmt(q)
	if err != nil {
		return err
	}
	if once {
		defer func() { _ = s.Close() }() // it says again what the statement said
	}
	var own error // of fn: no fault of the database
	err = s.Each(args, func(scan func(...any) error) error {
		own = fn(scan)
		return own
	})
	if own != nil {
		return own
	}
	return t.d.note(err)
}

// ask is Row for a statement that is not worth keeping.
func (d *DB) ask(q string, args []any, dest ...any) (bool, error) {
	s, err := d.conn.Prepare(q)
	if err != nil {
		return false, err
	}
	defer func() { _ = s.Close() }() // it says again what the statement said
	return s.Row(args, dest)
}

// Columns selects an event in the order Scan reads it.
const Columns = "id, created_at, source, type, subtype, content"

// Scan reads an event selected by Columns.
func Scan(scan func(...any) error) (thread.Event, error) {
	var e thread.Event
	err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content)
	return e, err
}

// Events calls fn for every row of a query that selects Columns.
func (t *Tx) Events(q string, args []any, fn func(thread.Event) error) error {
	var e thread.Event
	dest := []any{&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content}
	return t.Each(q, args, func(scan func(...any) error) error {
		if err := scan(dest...); err != nil {
			return err
		}
		return fn(e)
	})
}

// Event reads one event; false when the id is not there.
func (t *Tx) Event(id int64) (thread.Event, bool, error) {
	var e thread.Event
	ok, err := t.Row("SELECT "+Columns+" FROM events WHERE id = ?", []any{id}, &e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content)
	return e, ok, err
}

// Head is the greatest event id, 0 when there is none.
func (t *Tx) Head() (int64, error) {
	var head int64
	_, err := t.Row("SELECT COALESCE(MAX(id), 0) FROM events", nil, &head)
	return head, err
}

// Last answers the greatest event id and the id that the next event gets, which is
// greater: ids of a removed or restored thread are not given again.
func (t *Tx) Last() (head, next int64, err error) {
	_, err = t.Row("SELECT COALESCE(MAX(id), 0), COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) FROM events", nil, &head, &next)
	return head, max(head, next) + 1, err
}

// Insert appends an event with the next id.
func (t *Tx) Insert(n store.NewEvent) (thread.Event, error) {
	_, next, err := t.Last()
	e := thread.Event{ID: next, CreatedAt: thread.Stamp(time.Now()), Source: n.Source, Type: n.Type, Subtype: n.Subtype, Content: n.Content}
	if err != nil {
		return e, err
	}
	return e, t.Store(e)
}

// Store appends an event whose id is that of Last, and chains it.
func (t *Tx) Store(e thread.Event) error {
	if e.ID != t.d.chain.ID+1 { // else nothing foreign is before it
		if err := t.ChainForeign(); err != nil {
			return err
		}
	}
	if _, err := t.Exec("INSERT INTO events(id, created_at, source, type, subtype, content) VALUES(?,?,?,?,?,?)",
		e.ID, e.CreatedAt, e.Source, e.Type, e.Subtype, e.Content); err != nil {
		return err
	}
	t.events = append(t.events, e)
	return t.link(e)
}

// Deduped answers the event id committed under key; 0 when there is none.
func (t *Tx) Deduped(key string) (int64, error) {
	var id int64
	_, err := t.Row("SELECT event_id FROM x_dedupe WHERE key = ?", []any{key}, &id)
	return id, err
}

// InsertOnce appends an event unless key was used, in which case it answers the
// id of then and false.
func (t *Tx) InsertOnce(key string, token uint64, n store.NewEvent) (int64, bool, error) {
	if id, err := t.Deduped(key); err != nil || id != 0 {
		return id, false, err
	}
	e, err := t.Insert(n)
	if err != nil {
		return 0, false, err
	}
	return e.ID, true, t.Dedupe(key, e.ID, token)
}

// DedupeNew is Dedupe of a key of no lease, which stays as it is when it is in use.
func (t *Tx) DedupeNew(key string, id int64) error {
	_, err := t.Exec("INSERT INTO x_dedupe(key, event_id, token) VALUES(?,?,0) ON CONFLICT DO NOTHING", key, id)
	return err
}

// Dedupe remembers that an event was committed under key.
func (t *Tx) Dedupe(key string, id int64, token uint64) error {
	_, err := t.Exec("INSERT INTO x_dedupe(key, event_id, token) VALUES(?,?,?)", key, id, int64(token))
	return err
}
