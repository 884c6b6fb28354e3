package journal

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// encoding is the version of the thread id encoding, kept with each route.
const encoding = 1

// openEvent are the events after an id that have no fate.
const openEvent = " FROM events e WHERE id > ? AND NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id)"

// Open answers events that have no fate, with their routes; those that can have no turn
// get their fate here.
func Open(ctx context.Context, tx *db.Tx, agent string, token uint64, o store.OpenBatch) (b store.Batch, err error) {
	// What another program wrote is chained before anything is decided on it.
	if err := tx.ChainForeign(); err != nil {
		return b, err
	}
	// Before the events are read: those at the end of lost processes are among them.
	lost, err := loseProcesses(tx, agent, token)
	if err != nil {
		return b, err
	}
	in, err := loadInbox(tx)
	if err != nil {
		return b, err
	}
	if in.Routes, err = routes(tx); err != nil {
		return b, err
	}
	if in.Open, in.More, err = open(tx, max(o.After, in.Acked), o.Limit); err != nil {
		return b, err
	}
	if in.Origins, err = origins(tx, in.Open); err != nil {
		return b, err
	}
	b, ask := machine.Open(&in, o, nil)
	if ask != "" {
		begun, err := firstUnclaimed(ctx, tx, &in, o)
		if err != nil {
			return b, err
		}
		b, _ = machine.Open(&in, o, &machine.Begun{Mode: ask, From: begun})
	}
	if r := in.Changed; r != nil {
		if _, err := tx.Exec("DELETE FROM x_route WHERE from_id >= ?", r.From); err != nil {
			return b, err
		}
		if _, err := tx.Exec("INSERT INTO x_route(from_id, mode, encoding) VALUES(?,?,?)", r.From, r.Mode, encoding); err != nil {
			return b, err
		}
	}
	if len(in.Fates) > 0 || lost || in.Caught(o) {
		b.Acked, _, err = saveInbox(tx, &in)
	}
	return b, err
}

// Settle gives an inbox event its fate, moves the ack, and counts it in the list of
// sessions (T8).
func Settle(tx *db.Tx, s store.Settlement) (acked int64, err error) {
	in, err := loadInbox(tx)
	if err != nil {
		return 0, err
	}
	machine.Settle(&in, s)
	acked, fresh, err := saveInbox(tx, &in)
	if err != nil {
		return 0, err
	}
	return acked, settleSession(tx, s, fresh, in.Now.UnixMilli())
}

func loadInbox(tx *db.Tx) (in machine.Inbox, err error) {
	in.UUID, in.Now = tx.UUID(), time.Now()
	if in.Head, err = tx.Head(); err != nil {
		return in, err
	}
	if in.Acked, err = consumer.Acked(tx, thread.Inbox); err != nil {
		return in, err
	}
	in.Running, err = runs(tx)
	return in, err
}

func routes(tx *db.Tx) (out []machine.Route, err error) {
	err = tx.Each("SELECT from_id, mode FROM x_route ORDER BY from_id", nil, func(scan func(...any) error) error {
		var r machine.Route
		err := scan(&r.From, &r.Mode)
		out = append(out, r)
		return err
	})
	return out, err
}

// open reads events after an id that have no fate, within the size of one answer.
func open(tx *db.Tx, after int64, limit int) (out []thread.Event, more bool, err error) {
	bytes := 0
	err = tx.Events("SELECT "+db.Columns+openEvent+" ORDER BY id LIMIT ?", []any{after, limit + 1}, func(e thread.Event) error {
		bytes += e.Size()
		if more = more || len(out) == limit || (len(out) > 0 && bytes > thread.MaxAnswer); !more {
			out = append(out, e)
		}
		return nil
	})
	return out, more, err
}

// firstUnclaimed is the id after the last open event that was begun; 0 when none was. An event
// with an origin has no part in it: no mode decides where it goes.
func firstUnclaimed(ctx context.Context, tx *db.Tx, in *machine.Inbox, o store.OpenBatch) (from int64, err error) {
	err = tx.Events("SELECT "+db.Columns+openEvent+" ORDER BY id LIMIT ?", []any{in.Acked, machine.MaxAhead}, func(e thread.Event) error {
		origin, err := Origin(tx, e.ID)
		if err != nil || origin != nil {
			return err
		}
		begun, err := o.Claimed(ctx, e, e.Key(in.UUID), in.ModeAt(e.ID))
		if begun {
			from = e.ID + 1
		}
		return err
	})
	return from, err
}

// saveInbox writes the fates and moves the ack. fresh is how many events had no fate before.
func saveInbox(tx *db.Tx, in *machine.Inbox) (acked, fresh int64, err error) {
	for _, f := range in.Fates {
		n, err := saveFate(tx, f)
		if err != nil {
			return 0, 0, err
		}
		fresh += n
	}
	if in.OutboxHead > 0 {
		if _, err := tx.Exec("INSERT INTO x_outbox(thread, head) VALUES(?,?) ON CONFLICT(thread) DO UPDATE SET head = MAX(head, excluded.head)", in.OutboxThread, in.OutboxHead); err != nil {
			return 0, 0, err
		}
	}
	if _, err := tx.Row("SELECT id"+openEvent+" ORDER BY id LIMIT 1", []any{in.Acked}, &in.FirstOpen); err != nil {
		return 0, 0, err
	}
	if acked = machine.Advance(in); in.AckMoved {
		err = consumer.Ack(tx, thread.Inbox, acked)
	}
	return acked, fresh, err
}

// saveFate answers how many events got a fate: none where there was one.
func saveFate(tx *db.Tx, f machine.Fate) (int64, error) {
	n, err := tx.Exec("INSERT OR IGNORE "+schema.IntoFate, f.InboxID, f.Key, f.Thread, string(f.Fate), f.At)
	if err != nil || n == 0 || f.Fate != store.FateDead {
		return n, err
	}
	_, err = tx.Exec("INSERT OR IGNORE INTO x_dead(inbox_id, error) VALUES(?,?)", f.InboxID, f.Error)
	return n, err
}
