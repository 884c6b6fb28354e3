package sqlite

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// encoding is the version of the thread id encoding, kept with each route.
const encoding = 1

// State answers what dispatch must know of an inbox.
func (e *Engine) State(ctx context.Context, agent string) (store.InboxState, error) {
	var s store.InboxState
	err := e.view(ctx, store.Inbox(agent), func(tx *db.Tx) error {
		s = store.InboxState{UUID: tx.UUID(), Fences: map[string]uint64{}}
		var desired string
		if _, err := tx.Row(`SELECT desired, EXISTS(SELECT 1 FROM subscriptions WHERE consumer_id = 'inbox'),
			COALESCE((SELECT MAX(id) FROM events),0), COALESCE((SELECT id FROM x_ack WHERE consumer = 'inbox'),0),
			COALESCE((SELECT created_at FROM events ORDER BY id DESC LIMIT 1),''),
			(SELECT COUNT(*) FROM x_dead WHERE resolved = '') + (SELECT COALESCE(SUM(dead),0) FROM x_outbox)
			FROM x_meta`, nil, &desired, &s.Subscribed, &s.Head, &s.Acked, &s.LastAt, &s.Dead); err != nil {
			return err
		}
		s.Started = desired == "started" || (desired == "" && s.Subscribed)
		if _, err := tx.Row("SELECT COUNT(*) FROM events e WHERE id > ? AND NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id)", []any{s.Acked}, &s.Pending); err != nil {
			return err
		}
		if err := tx.Each("SELECT thread FROM x_outbox WHERE acked < head ORDER BY thread", nil, func(scan func(...any) error) error {
			var t string
			err := scan(&t)
			s.Outbox = append(s.Outbox, t)
			return err
		}); err != nil {
			return err
		}
		return tx.Each("SELECT resource, token FROM x_fence", nil, func(scan func(...any) error) error {
			var r string
			var t int64
			err := scan(&r, &t)
			s.Fences[r] = uint64(t)
			return err
		})
	})
	return s, err
}

// InboxEvent answers one inbox event and its key.
func (e *Engine) InboxEvent(ctx context.Context, agent string, id int64) (thread.Event, string, error) {
	var ev thread.Event
	var key string
	err := e.view(ctx, store.Inbox(agent), func(tx *db.Tx) error {
		var ok bool
		var err error
		if ev, ok, err = tx.Event(id); err == nil && !ok {
			err = store.ErrNoTurn
		}
		key = ev.Key(tx.UUID())
		return err
	})
	return ev, key, err
}

// SetStarted stores the desired state, then makes the subscription agree; both
// in one transaction, so that no reader ever sees one without the other.
func (e *Engine) SetStarted(ctx context.Context, agent string, started bool, handler string) (bool, error) {
	changed := false
	err := e.do(ctx, store.Inbox(agent), true, func(tx *db.Tx) error {
		want := "stopped"
		if started {
			want = "started"
		}
		var desired string
		var subscribed bool
		if _, err := tx.Row("SELECT desired, EXISTS(SELECT 1 FROM subscriptions WHERE consumer_id = 'inbox') FROM x_meta", nil, &desired, &subscribed); err != nil {
			return err
		}
		changed = started != (desired == "started" || (desired == "" && subscribed))
		if desired != want {
			if _, err := tx.Exec("UPDATE x_meta SET desired = ?", want); err != nil {
				return err
			}
		}
		if started {
			return upsertSubscription(tx, thread.Inbox, handler, nil)
		}
		_, err := tx.Exec("DELETE FROM subscriptions WHERE consumer_id = 'inbox'")
		return err
	})
	return changed, err
}

// OpenBatch seals the inbox and answers events that have no fate, with their
// routes; events that can have no turn get their fate here.
func (e *Engine) OpenBatch(ctx context.Context, agent string, f store.Fence, o store.OpenBatch) (store.Batch, error) {
	var b store.Batch
	err := e.do(ctx, store.Inbox(agent), false, func(tx *db.Tx) error {
		b = store.Batch{}
		if err := e.fence(tx, f); err != nil {
			return err
		}
		acked, err := ackOf(tx, thread.Inbox)
		if err != nil {
			return err
		}
		if err := reconcileRoute(ctx, tx, acked, o); err != nil {
			return err
		}
		if b.Head, err = tx.Head(); err != nil {
			return err
		}
		if err := openPending(tx, &b, max(o.After, acked), o); err != nil {
			return err
		}
		b.Acked = acked
		if b.Settled > 0 {
			b.Acked, err = advance(tx, acked)
		}
		return err
	})
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
		mode, err := modeAt(tx, ev.ID)
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
	err := tx.Each("SELECT "+db.Columns+" FROM events e WHERE id > ? AND NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id) ORDER BY id LIMIT ?",
		[]any{after, limit + 1}, func(scan func(...any) error) error {
			ev, err := db.Scan(scan)
			if err != nil {
				return err
			}
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
		from = acked + 1
		events, _, err := pending(tx, acked, 1024)
		if err != nil {
			return err
		}
		for _, ev := range events {
			m, err := modeAt(tx, ev.ID)
			if err != nil {
				return err
			}
			begun, err := o.Claimed(ctx, ev, ev.Key(tx.UUID()), m)
			if err != nil {
				return err
			}
			if begun {
				from = ev.ID + 1
			}
		}
	}
	if _, err := tx.Exec("DELETE FROM x_route WHERE from_id >= ?", from); err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO x_route(from_id, mode, encoding) VALUES(?,?,?)", from, o.Mode, encoding)
	return err
}

func modeAt(tx *db.Tx, id int64) (string, error) {
	var m string
	_, err := tx.Row("SELECT mode FROM x_route WHERE from_id <= ? ORDER BY from_id DESC LIMIT 1", []any{id}, &m)
	return m, err
}

// Settle gives an inbox event its fate and moves the ack (T8).
func (e *Engine) Settle(ctx context.Context, agent string, f store.Fence, s store.Settlement) (int64, error) {
	var acked int64
	err := e.do(ctx, store.Inbox(agent), false, func(tx *db.Tx) error {
		if err := e.fence(tx, f); err != nil {
			return err
		}
		if err := putFate(tx, s); err != nil {
			return err
		}
		if s.OutboxHead > 0 {
			if _, err := tx.Exec("INSERT INTO x_outbox(thread, head) VALUES(?,?) ON CONFLICT(thread) DO UPDATE SET head = MAX(head, excluded.head)", s.Thread, s.OutboxHead); err != nil {
				return err
			}
		}
		now, err := ackOf(tx, thread.Inbox)
		if err != nil {
			return err
		}
		acked, err = advance(tx, now)
		return err
	})
	return acked, err
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
	return to, setAck(tx, thread.Inbox, to)
}

// MarkOutbox keeps a thread's delivery progress beside the inbox, so that a
// restart finds what is left to send without opening every thread.
func (e *Engine) MarkOutbox(ctx context.Context, agent string, m store.OutboxMark) error {
	return e.do(ctx, store.Inbox(agent), false, func(tx *db.Tx) error {
		_, err := tx.Exec(`INSERT INTO x_outbox(thread, head, acked, dead) VALUES(?,0,?,?)
			ON CONFLICT(thread) DO UPDATE SET acked = MAX(acked, excluded.acked), dead = excluded.dead`, m.Thread, m.Acked, m.Dead)
		if err != nil || !m.Reopen {
			return err
		}
		_, err = tx.Exec("UPDATE x_outbox SET head = MAX(head, 1), acked = MIN(acked, MAX(head, 1) - 1) WHERE thread = ?", m.Thread)
		return err
	})
}
