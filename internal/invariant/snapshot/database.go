package snapshot

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// ReadDB reads the database in dir.
func ReadDB(ctx context.Context, agent, threadID, dir string, o Options) *DB {
	d := NewDB(agent, threadID)
	d.Dir = dir
	path := filepath.Join(dir, "events.db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		d.Absent = true
		d.damage("events", err)
		return d
	}
	c, done, err := Open(ctx, path, o.Live)
	if err != nil {
		d.damage("events", err)
		return d
	}
	defer done()
	l := loader{ctx: ctx, c: c, d: d, o: o}
	l.structure()
	l.meta()
	l.events()
	l.account()
	l.journal()
	l.sessions()
	return d
}

// NewDB is a thread of which nothing has been read yet.
func NewDB(agent, threadID string) *DB {
	return &DB{
		Agent: agent, Thread: threadID, Unread: map[string]bool{}, Dead: map[int64]bool{}, Acks: map[string]int64{},
		Fences: map[string]uint64{}, Outbox: map[string]int64{}, Dedupe: map[string]Dedupe{}, byID: map[int64]int{},
	}
}

// Put notes an event as it was read, behind those before it; prev is what its link
// says of the event before it. The UUID is known by then.
func (d *DB) Put(full thread.Event, prev []byte) {
	d.put(d.hashed(Event{ID: full.ID, CreatedAt: full.CreatedAt, Source: full.Source, Type: full.Type, Subtype: full.Subtype, Plain: true}, full, prev), full)
}

func (d *DB) put(e Event, full thread.Event) {
	d.byID[e.ID] = len(d.Events)
	d.Events = append(d.Events, e)
	if e.Type == thread.TypeRecord && e.Subtype != nil && *e.Subtype == thread.SubtypeSession && !d.IsInbox() {
		var begun struct {
			SessionID string `json:"session_id"`
		}
		_ = json.Unmarshal([]byte(full.Content), &begun) // one that cannot be read gives no id
		d.Epochs = append(d.Epochs, Epoch{EventID: e.ID, ID: begun.SessionID, Erased: full.Content == store.Erased})
	}
}

// hashed is the event with all that is made of its content.
func (d *DB) hashed(e Event, full thread.Event, prev []byte) Event {
	e.Sum, e.Linked = full.Hash(nil), full.Hash(prev)
	if d.IsInbox() {
		e.Key = full.Key(d.UUID)
	} else if e.Type == thread.TypeMessage {
		said := full
		said.ID, said.CreatedAt = 0, ""
		e.Said, e.DeliveryKey = said.Hash(nil), full.DeliveryKey(d.UUID)
	}
	return e
}

// Bury lets the tombstone of an erased event vouch, for its keys were made of what is gone, and
// so was its link, which is sum.
func (e *Event) Bury(full thread.Event, sum []byte, key string, proof []byte) {
	e.Key, e.DeliveryKey, e.Said, e.Linked = key, key, full.Hash(nil), [32]byte{}
	if len(sum) == len(e.Linked) && bytes.Equal(proof, thread.TombstoneProof(full, sum, key)) {
		e.Linked = [32]byte(sum)
	}
}

func (d *DB) damage(table string, err error) {
	if table != "" {
		d.Unread[table] = true
	}
	text := err.Error()
	if table != "" {
		text = table + ": " + text
	}
	if !slices.Contains(d.Damage, text) {
		d.Damage = append(d.Damage, text)
	}
}

// loader reads one database; an error ends one table, not the reading.
type loader struct {
	ctx context.Context
	c   *sql.Conn
	d   *DB
	o   Options
	// there are the tables and indexes of the database, with what made them.
	there map[string]string
}

// table calls fn for the rows of a query on a table. A table that is absent is
// in Missing already and no damage.
func (l *loader) table(name, query string, fn func(scan func(...any) error) error) {
	err := each(l.ctx, l.c, query, func(r *sql.Rows) error { return fn(r.Scan) })
	switch {
	case err == nil:
	case noTable(err) && slices.ContainsFunc(l.d.Missing, func(m string) bool { return m == name || strings.HasPrefix(m, name+".") }):
		l.d.Unread[name] = true
	default:
		l.d.damage(name, err)
	}
}

// structure asks SQLite whether the file is sound and what is missing in it.
func (l *loader) structure() {
	l.table("", "PRAGMA integrity_check(20)", func(scan func(...any) error) error {
		var line string
		err := scan(&line)
		if err == nil && line != "ok" {
			l.d.Damage = append(l.d.Damage, strings.ReplaceAll(line, "\n", " "))
		}
		return err
	})
	want, err := Schema()
	if err != nil {
		l.d.damage("", err)
		return
	}
	there := map[string]string{}
	l.there = there
	l.table("sqlite_master", "SELECT name, COALESCE(sql,'') FROM sqlite_master", func(scan func(...any) error) error {
		var name, text string
		err := scan(&name, &text)
		there[name] = text
		return err
	})
	if l.d.Unread["sqlite_master"] {
		return // what is missing cannot be told
	}
	l.d.Foreign = true
	for name := range there {
		l.d.Foreign = l.d.Foreign && !strings.HasPrefix(name, "x_")
	}
	var columns map[string][]string // looked at when a table was made in other words
	for _, w := range want {
		made, ok := there[w.Name]
		if !ok {
			l.d.Missing = append(l.d.Missing, w.Name)
			continue
		}
		if made == w.SQL || len(w.Columns) == 0 {
			continue
		}
		if columns == nil {
			if columns, err = columnsOf(l.ctx, l.c); err != nil {
				l.d.Unread["sqlite_master"] = true
				return
			}
		}
		for _, c := range w.Columns {
			if !slices.Contains(columns[w.Name], c) {
				l.d.Missing = append(l.d.Missing, w.Name+"."+c)
			}
		}
	}
}

func (l *loader) meta() {
	d := l.d
	l.table("x_meta", "SELECT uuid, desired FROM x_meta", func(scan func(...any) error) error { return scan(&d.UUID, &d.Desired) })
	l.table("sqlite_sequence", "SELECT seq FROM sqlite_sequence WHERE name = 'events'", func(scan func(...any) error) error { return scan(&d.Sequence) })
	l.table("subscriptions", "SELECT 1 FROM subscriptions WHERE consumer_id = 'inbox'", func(scan func(...any) error) error {
		d.Subscribed = true
		return nil
	})
}

// events reads chain and events together: an event's hash is over its content,
// which is not kept.
func (l *loader) events() {
	d := l.d
	prev, sums, tombs := map[int64][]byte{}, map[int64][]byte{}, l.tombs()
	l.table("x_chain", "SELECT event_id, prev, sha256 FROM x_chain ORDER BY event_id", func(scan func(...any) error) error {
		var k Link
		if err := scan(&k.ID, &k.Prev, &k.Sum); err != nil {
			return err
		}
		d.Links = append(d.Links, k)
		prev[k.ID], sums[k.ID] = k.Prev, k.Sum
		return nil
	})
	l.table("events", "SELECT id, created_at, source, type, subtype, content FROM events ORDER BY id", func(scan func(...any) error) error {
		var id int64
		var col [5]any
		if err := scan(&id, &col[0], &col[1], &col[2], &col[3], &col[4]); err != nil {
			return err
		}
		e, full := event(id, col)
		e = d.hashed(e, full, prev[id])
		if t, ok := tombs[id]; ok {
			e.Bury(full, sums[id], t.key, t.proof)
		}
		d.put(e, full)
		d.Search(l.o.Search, "event "+itoa(id), full.Content)
		return nil
	})
}

// has reports whether the database has a table that not every database has.
func (l *loader) has(table string) bool {
	_, ok := l.there[table]
	return ok
}

// A tomb stands for what was erased from an event.
type tomb struct {
	key   string
	proof []byte
}

// tombs are there where something was erased.
func (l *loader) tombs() map[int64]tomb {
	out := map[int64]tomb{}
	if l.has("x_erased") {
		l.table("x_erased", "SELECT event_id, key, proof FROM x_erased", func(scan func(...any) error) error {
			var id int64
			var t tomb
			err := scan(&id, &t.key, &t.proof)
			out[id] = t
			return err
		})
	}
	return out
}

var eventColumns = [5]string{"created_at", "source", "type", "subtype", "content"}

// event makes an event of what a row really holds. SQLite stores any type in
// any column: a single flipped bit makes a blob of a text, with the same bytes.
func event(id int64, col [5]any) (Event, thread.Event) {
	e := Event{ID: id, Plain: true}
	text := func(i int) string {
		s, ok := col[i].(string)
		if !ok {
			e.NotText = eventColumns[i]
			if b, isBlob := col[i].([]byte); isBlob {
				s = string(b)
			}
		}
		e.Plain = e.Plain && utf8.ValidString(s)
		return s
	}
	e.CreatedAt, e.Source, e.Type = text(0), text(1), text(2)
	content := text(4)
	if col[3] != nil {
		s := text(3)
		e.Subtype = &s
	}
	return e, thread.Event{ID: id, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: content}
}

// Search notes which of the texts stand in what was read at a place.
func (d *DB) Search(texts []string, where, in string) {
	for i, s := range texts {
		if s != "" && strings.Contains(in, s) {
			d.Sightings = append(d.Sightings, Sighting{i, where})
		}
	}
}

// Millis is a stored time; zero: none.
func Millis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
