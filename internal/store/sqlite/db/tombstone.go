package db

import (
	"bytes"
	"context"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// tombstone is a row of x_erased, which replaces the content of an erased event: the
// event's key, which was made of the content and identifies its turn or delivery, and a
// proof over the link of the chain, the key and the event as it is now; see
// thread.TombstoneProof.
//
// The first tombstone makes the table and raises the format of the database, because a
// build that does not know tombstones would report the chain as broken.
type tombstone struct {
	key   string
	proof []byte
}

// tombstones are those of a database by event.
type tombstones map[int64]tombstone

// readTombstones returns none where no event was erased.
func readTombstones(c conn.Conn) (tombstones, error) {
	var there int
	if err := eachRow(c, "SELECT COUNT(*) FROM sqlite_master WHERE name = 'x_erased'", func(scan func(...any) error) error { return scan(&there) }); err != nil || there == 0 {
		return nil, err
	}
	out := tombstones{}
	err := eachRow(c, "SELECT event_id, key, proof FROM x_erased", func(scan func(...any) error) error {
		var id int64
		var t tombstone
		err := scan(&id, &t.key, &t.proof)
		out[id] = t
		return err
	})
	return out, err
}

func eachRow(c conn.Conn, q string, fn func(scan func(...any) error) error) error {
	s, err := c.Prepare(q)
	if err != nil {
		return fmt.Errorf("read what was erased: %w", err)
	}
	defer func() { _ = s.Close() }() // repeats the error of the statement
	return s.Each(nil, fn)
}

// linked reports whether e matches its link: as the event itself, or as the rest of one
// that was erased.
func (s tombstones) linked(e thread.Event, prev, sum []byte) bool {
	if t, ok := s[e.ID]; ok {
		return bytes.Equal(t.proof, thread.TombstoneProof(e, sum, t.key))
	}
	got := e.Hash(prev)
	return bytes.Equal(got[:], sum)
}

// tombstones returns the tombstones, and reads them when they may have changed.
func (d *DB) tombstones() (tombstones, error) {
	if !d.erasedRead {
		all, err := readTombstones(d.conn)
		if err != nil {
			return nil, d.note(err)
		}
		d.erased, d.erasedRead = all, true
	}
	return d.erased, nil
}

// Erase replaces the contents of events by text and leaves a tombstone for each. It does
// not change an event that was erased before.
func (t *Tx) Erase(ids []int64, text string) error {
	if err := t.ChainForeign(); err != nil {
		return err
	}
	t.d.erasedRead = false // read again after the commit: this transaction may be undone
	if err := t.raise(schema.FormatErased, schema.Erased); err != nil {
		return err
	}
	for _, id := range ids {
		if err := t.erase(id, text); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) erase(id int64, text string) error {
	var before int
	if _, err := t.Row("SELECT COUNT(*) FROM x_erased WHERE event_id = ?", []any{id}, &before); err != nil || before > 0 {
		return err
	}
	e, ok, err := t.Event(id)
	if err != nil || !ok {
		return err
	}
	var link []byte
	if _, err := t.Row("SELECT sha256 FROM x_chain WHERE event_id = ?", []any{id}, &link); err != nil {
		return err
	}
	key, sent := e.Key(t.UUID()), ""
	if ok, err := t.Row("SELECT key FROM x_delivery WHERE event_id = ?", []any{id}, &sent); err != nil {
		return err
	} else if ok {
		key = sent
	}
	e.Content = text
	if _, err := t.Exec("UPDATE events SET content = ? WHERE id = ?", text, id); err != nil {
		return err
	}
	_, err = t.Exec("INSERT INTO x_erased(event_id, key, proof) VALUES(?,?,?)", id, key, thread.TombstoneProof(e, link, key))
	return err
}

// KeyOf is the key of an inbox event, which an erased one keeps.
func (t *Tx) KeyOf(e thread.Event) (string, error) {
	all, err := t.d.tombstones()
	if b, ok := all[e.ID]; ok {
		return b.key, err
	}
	return e.Key(t.d.uuid), err
}

// Alone runs fn on the connection, outside of any transaction.
func (d *DB) Alone(ctx context.Context, fn func(conn.Conn) error) error {
	return d.submit(ctx, &op{alone: func() error { return fn(d.conn) }})
}

// Scrub removes what was erased from the files: from free pages and the log of the
// database, and from events.jsonl. No other operation runs meanwhile. store.ErrBusy when
// another program reads the database and so keeps the old pages.
func (d *DB) Scrub(ctx context.Context) error {
	return d.submit(ctx, &op{alone: d.scrub})
}

func (d *DB) scrub() error {
	if err := d.setSync(true); err != nil {
		return err
	}
	if err := vacuum(d.conn); err != nil {
		return d.note(err)
	}
	all, err := d.tombstones()
	if err != nil {
		return err
	}
	return d.out.Rewrite(func(id int64) (e thread.Event, ok bool, err error) {
		if _, ok = all[id]; ok {
			e, ok, err = (&Tx{d: d}).Event(id)
		}
		return e, ok, err
	})
}

// vacuum rewrites the database without its free pages and empties its log, so that no
// page holds what was erased. store.ErrBusy when another program reads, for which the
// old pages are kept.
func vacuum(c conn.Conn) error {
	if err := c.Script("VACUUM"); err != nil {
		return fmt.Errorf("write the database again: %w", err)
	}
	busy := 0
	err := eachRow(c, "PRAGMA wal_checkpoint(TRUNCATE)", func(scan func(...any) error) error {
		var pages, moved int
		return scan(&busy, &pages, &moved)
	})
	if err == nil && busy != 0 {
		err = fmt.Errorf("empty the log of the database: %w", store.ErrBusy)
	}
	return err
}
