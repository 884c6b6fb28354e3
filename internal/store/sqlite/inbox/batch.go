package inbox

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// encoding is the version of the thread id encoding, kept with each route.
const encoding = 1

// maxAhead is how many open events beyond the ack may have been begun.
const maxAhead = 1024

const openEvents = "SELECT " + db.Columns + " FROM events e WHERE id > ? AND NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id) ORDER BY id LIMIT ?"

// Open answers events that have no fate, with their routes; events that can
// have no turn get their fate here.
func Open(ctx context.Context, tx *db.Tx, o store.OpenBatch) (store.Batch, error) {
	var b store.Batch
	// What another program wrote is chained before anything is decided on it.
	if err := tx.ChainForeign(); err != nil {
		return b, err
	}
	acked, err := consumer.Acked(tx, thread.Inbox)
	if err != nil {
		return b, err
	}
	if err := reconcileRoute(ctx, tx, acked, o); err != nil {
		return b, err
	}
	if b.Head, err = tx.Head(); err != nil {
		return b, err
	}
	if err := openPending(tx, &b, max(o.After, acked), o); err != nil {
		return b, err
	}
	b.Acked = acked
	if b.Settled > 0 {
		b.Acked, err = advance(tx, acked)
	}
	return b, err
}

func openPending(tx *db.Tx, b *store.Batch, after int64, o store.OpenBatch) error {
	events, more, err := pending(tx, after, o.Limit)
	if err != nil {
		return err
	}
	b.Scanned, b.More = b.Head, more
	for _, ev := range events {
		if more {
			b.Scanned = ev.ID
		}
		key := ev.Key(tx.UUID())
		if ev.Type != thread.TypeMessage {
			b.Settled++
			if err := putFate(tx, store.Settlement{InboxID: ev.ID, Key: key, Fate: store.FateNotAMessage}); err != nil {
				return err
			}
			continue
		}
		mode, err := ModeAt(tx, ev.ID)
		if err != nil {
			return err
		}
		id, problem := o.Route(ev, mode)
		if problem != nil {
			b.Settled++
			if err := putFate(tx, store.Settlement{InboxID: ev.ID, Key: key, Fate: store.FateDead, Error: problem.Error()}); err != nil {
				return err
			}
			continue
		}
		b.Events = append(b.Events, store.Pending{Event: ev, Key: key, Thread: id})
	}
	return nil
}

// pending reads events after an id that have no fate, within the size of one
// answer.
func pending(tx *db.Tx, after int64, limit int) ([]thread.Event, bool, error) {
	var out []thread.Event
	more, bytes := false, 0
	err := tx.Events(openEvents,
		[]any{after, limit + 1}, func(ev thread.Event) error {
			bytes += ev.Size()
			if more = more || len(out) == limit || (len(out) > 0 && bytes > thread.MaxAnswer); !more {
				out = append(out, ev)
			}
			return nil
		})
	return out, more, err
}

// reconcileRoute writes a changed routing mode with the first event it applies
// to: the one after the last that an earlier mode has already begun. What an
// event's thread is can so never change between a crash and the recovery.
func reconcileRoute(ctx context.Context, tx *db.Tx, acked int64, o store.OpenBatch) error {
	var mode string
	ok, err := tx.Row("SELECT mode FROM x_route ORDER BY from_id DESC LIMIT 1", nil, &mode)
	if err != nil || (ok && mode == o.Mode) {
		return err
	}
	from := int64(1)
	if ok {
		if from, err = firstUnclaimed(ctx, tx, acked, o); err != nil {
			return err
		}
	}
	if _, err := tx.Exec("DELETE FROM x_route WHERE from_id >= ?", from); err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO x_route(from_id, mode, encoding) VALUES(?,?,?)", from, o.Mode, encoding)
	return err
}

// firstUnclaimed is the id after the last open event that was begun.
func firstUnclaimed(ctx context.Context, tx *db.Tx, acked int64, o store.OpenBatch) (int64, error) {
	from := acked + 1
	err := tx.Events(openEvents, []any{acked, maxAhead}, func(ev thread.Event) error {
		mode, err := ModeAt(tx, ev.ID)
		if err != nil {
			return err
		}
		begun, err := o.Claimed(ctx, ev, ev.Key(tx.UUID()), mode)
		if begun {
			from = ev.ID + 1
		}
		return err
	})
	return from, err
}

// ModeAt is the routing mode of an event: the newest written for an id up to it.
func ModeAt(tx *db.Tx, id int64) (string, error) {
	var m string
	_, err := tx.Row("SELECT mode FROM x_route WHERE from_id <= ? ORDER BY from_id DESC LIMIT 1", []any{id}, &m)
	return m, err
}

// Settle gives an inbox event its fate and moves the ack (T8).
func Settle(tx *db.Tx, s store.Settlement) (int64, error) {
	if err := putFate(tx, s); err != nil {
		return 0, err
	}
	for _, m := range s.Merged {
		if err := putFate(tx, store.Settlement{InboxID: m.InboxID, Key: m.Key, Thread: s.Thread, Fate: store.FateMerged}); err != nil {
			return 0, err
		}
	}
	if s.OutboxHead > 0 {
		if _, err := tx.Exec("INSERT INTO x_outbox(thread, head) VALUES(?,?) ON CONFLICT(thread) DO UPDATE SET head = MAX(head, excluded.head)", s.Thread, s.OutboxHead); err != nil {
			return 0, err
		}
	}
	acked, err := consumer.Acked(tx, thread.Inbox)
	if err != nil {
		return 0, err
	}
	return advance(tx, acked)
}

func putFate(tx *db.Tx, s store.Settlement) error {
	n, err := tx.Exec("INSERT OR IGNORE INTO x_fate(inbox_id, key, thread, fate, at) VALUES(?,?,?,?,?)",
		s.InboxID, s.Key, s.Thread, string(s.Fate), store.Millis(time.Now()))
	if err != nil || n == 0 || s.Fate != store.FateDead {
		return err
	}
	_, err = tx.Exec("INSERT OR IGNORE INTO x_dead(inbox_id, error) VALUES(?,?)", s.InboxID, s.Error)
	return err
}

// advance moves the ack to the end of the contiguous done prefix.
func advance(tx *db.Tx, acked int64) (int64, error) {
	var open int64
	ok, err := tx.Row("SELECT id FROM events e WHERE id > ? AND NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id) ORDER BY id LIMIT 1", []any{acked}, &open)
	if err != nil {
		return acked, err
	}
	to := open - 1
	if !ok {
		if to, err = tx.Head(); err != nil {
			return acked, err
		}
	}
	if to <= acked {
		return acked, nil
	}
	return to, consumer.Ack(tx, thread.Inbox, to)
}
