package db

import (
	"context"

	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/tomb"
	"github.com/theclaw/agents/internal/thread"
)

// Bury replaces the contents of events by text and leaves a tomb for each.
func (t *Tx) Bury(ids []int64, text string) error {
	if err := t.ChainForeign(); err != nil {
		return err
	}
	t.d.tombsRead = false // read anew after the commit: this one may be undone
	return tomb.Bury(t, ids, text)
}

// tombs answers the tombs, and reads them when they may have changed.
func (d *DB) tombs() (tomb.Set, error) {
	if !d.tombsRead {
		all, err := tomb.Read(d.conn)
		if err != nil {
			return nil, d.note(err)
		}
		d.buried, d.tombsRead = all, true
	}
	return d.buried, nil
}

// KeyOf is the key of an inbox event, which an erased one keeps.
func (t *Tx) KeyOf(e thread.Event) (string, error) {
	all, err := t.d.tombs()
	if b, ok := all[e.ID]; ok {
		return b.Key, err
	}
	return e.Key(t.d.uuid), err
}

// Alone runs fn on the connection, outside of any transaction.
func (d *DB) Alone(ctx context.Context, fn func(conn.Conn) error) error {
	return d.submit(ctx, &op{alone: func() error { return fn(d.conn) }})
}

// Scrub removes what was erased from the files: from free pages and the log of the
// database, and from events.jsonl. Nothing else runs meanwhile. store.ErrBusy when
// another program reads the database and so keeps the old pages.
func (d *DB) Scrub(ctx context.Context) error {
	return d.submit(ctx, &op{alone: d.scrub})
}

func (d *DB) scrub() error {
	if err := d.setSync(true); err != nil {
		return err
	}
	if err := tomb.Sweep(d.conn); err != nil {
		return d.note(err)
	}
	all, err := d.tombs()
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
