package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
	"github.com/theclaw/agents/internal/thread"
)

// State answers what dispatch must know of an inbox.
func (e *Engine) State(ctx context.Context, agent string) (store.InboxState, error) {
	return view(ctx, e, store.Inbox(agent), journal.State)
}

// InboxEvent answers one inbox event and its key.
func (e *Engine) InboxEvent(ctx context.Context, agent string, id int64) (ev thread.Event, key string, err error) {
	err = e.pool.View(ctx, store.Inbox(agent), func(tx *db.Tx) error {
		ev, key, err = journal.Event(tx, id)
		return err
	})
	return ev, key, err
}

// SetStarted stores the desired state and makes the subscription agree.
func (e *Engine) SetStarted(ctx context.Context, agent string, started bool, handler string) (changed bool, err error) {
	err = e.do(ctx, store.Inbox(agent), true, func(tx *db.Tx) error {
		changed, err = journal.SetStarted(tx, started, handler)
		return err
	})
	return changed, err
}

// OpenBatch seals the inbox and answers events that have no fate.
func (e *Engine) OpenBatch(ctx context.Context, agent string, f store.Fence, o store.OpenBatch) (b store.Batch, err error) {
	err = e.fenced(ctx, store.Inbox(agent), f, false, func(tx *db.Tx) error {
		b, err = journal.Open(ctx, tx, agent, f.Token, o)
		return err
	})
	return b, err
}

// Settle gives an inbox event its fate and moves the ack (T8).
func (e *Engine) Settle(ctx context.Context, agent string, f store.Fence, s store.Settlement) (acked int64, err error) {
	err = e.fenced(ctx, store.Inbox(agent), f, false, func(tx *db.Tx) error {
		acked, err = journal.Settle(tx, s)
		return err
	})
	return acked, err
}

// MarkOutbox keeps a thread's delivery progress in the inbox.
func (e *Engine) MarkOutbox(ctx context.Context, agent string, m store.OutboxMark) error {
	return e.do(ctx, store.Inbox(agent), false, func(tx *db.Tx) error { return journal.MarkOutbox(tx, m) })
}

// transition runs a step of the state machine under a lease.
func (e *Engine) transition(ctx context.Context, r store.Ref, f store.Fence, durable bool, n machine.Needs, decide func(*machine.Thread) error) error {
	return e.fenced(ctx, r, f, durable, func(tx *db.Tx) error { return journal.Run(tx, f.Token, n, decide) })
}

// Begin claims an event and records it (T1, T2).
func (e *Engine) Begin(ctx context.Context, r store.Ref, f store.Fence, b store.Begin) (out store.Begun, err error) {
	err = e.fenced(ctx, r, f, false, func(tx *db.Tx) error {
		out, err = journal.Begin(tx, f, b)
		return err
	})
	return out, err
}

// Record journals steps and failed tries (T3, T4, T6). An intent of class effect
// is made durable: after it the outside world may change.
func (e *Engine) Record(ctx context.Context, r store.Ref, f store.Fence, rec store.Record) (attempts int, err error) {
	err = e.transition(ctx, r, f, machine.DurableRecord(rec), machine.RecordNeeds(rec), func(t *machine.Thread) error {
		attempts, err = machine.Record(t, rec)
		return err
	})
	return attempts, err
}

// Steer adds members to a running turn. Like a model's answer it may be lost to
// a power cut, and is then done again.
func (e *Engine) Steer(ctx context.Context, r store.Ref, f store.Fence, s store.Steer) (out store.Step, err error) {
	err = e.transition(ctx, r, f, false, machine.SteerNeeds(s), func(t *machine.Thread) error {
		out, err = machine.Steer(t, s)
		return err
	})
	return out, err
}

// Finish gives the turn its fate, durably (T7 or T9).
func (e *Engine) Finish(ctx context.Context, r store.Ref, f store.Fence, fin store.Finish) (out store.Finished, err error) {
	err = e.transition(ctx, r, f, true, machine.FinishNeeds(fin), func(t *machine.Thread) error {
		out, err = machine.Finish(t, fin)
		return err
	})
	return out, err
}

// ResetCrashes forgets the claims of turns that were given back cleanly.
func (e *Engine) ResetCrashes(ctx context.Context, r store.Ref, keys []string) error {
	return e.do(ctx, r, false, func(tx *db.Tx) error {
		return journal.Run(tx, 0, machine.ReleaseNeeds(keys), func(t *machine.Thread) error { machine.Release(t); return nil })
	})
}

// Claimed reports whether the thread has a turn under key.
func (e *Engine) Claimed(ctx context.Context, r store.Ref, key string) (bool, error) {
	return view(ctx, e, r, func(tx *db.Tx) (bool, error) { return journal.Claimed(tx, key) })
}

// SayID answers the event with the key of a Say.
func (e *Engine) SayID(ctx context.Context, r store.Ref, key string) (int64, error) {
	return view(ctx, e, r, func(tx *db.Tx) (int64, error) { return tx.Deduped(key) })
}

// Turn answers the account of an inbox event from the inbox and, when the event
// was claimed, from its conversation thread.
func (e *Engine) Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error) {
	t, err := view(ctx, e, store.Inbox(agent), func(tx *db.Tx) (store.Turn, error) { return journal.Turn(tx, agent, q) })
	if err != nil || t.Thread == "" {
		return t, err
	}
	err = e.pool.View(ctx, store.Ref{Agent: agent, Thread: t.Thread}, func(tx *db.Tx) error { return journal.Explain(tx, &t) })
	if errors.Is(err, store.ErrNotFound) {
		return t, nil // not claimed yet, or its thread was removed since
	}
	return t, err
}

// ListTurns answers turns from the inbox alone; their threads stay closed.
func (e *Engine) ListTurns(ctx context.Context, agent string, q store.ListTurns) ([]store.Turn, error) {
	return view(ctx, e, store.Inbox(agent), func(tx *db.Tx) ([]store.Turn, error) { return journal.Turns(tx, agent, q) })
}

// SumUsage adds up the journalled answers of a thread.
func (e *Engine) SumUsage(ctx context.Context, r store.Ref, q store.SumUsage) ([]store.UsageSum, error) {
	return view(ctx, e, r, func(tx *db.Tx) ([]store.UsageSum, error) { return journal.SumUsage(tx, q) })
}

// LastAnswer answers the newest answer of a model in a thread.
func (e *Engine) LastAnswer(ctx context.Context, r store.Ref, since time.Time) (store.UsageSum, error) {
	return view(ctx, e, r, func(tx *db.Tx) (store.UsageSum, error) { return journal.LastAnswer(tx, since) })
}

// ResolveTurn takes a dead turn off the dead letters.
func (e *Engine) ResolveTurn(ctx context.Context, agent string, inboxID int64, how string) (ev thread.Event, key string, err error) {
	err = e.do(ctx, store.Inbox(agent), true, func(tx *db.Tx) error {
		ev, key, err = journal.Resolve(tx, inboxID, how)
		return err
	})
	return ev, key, err
}

// NextDelivery answers the first undelivered event and counts the attempt (D1).
func (e *Engine) NextDelivery(ctx context.Context, r store.Ref, f store.Fence, n store.NextDelivery) (out store.DueDelivery, err error) {
	err = e.fenced(ctx, r, f, false, func(tx *db.Tx) error {
		needs := machine.NextNeeds(n)
		for more := &needs; more != nil; needs = *more {
			if err := journal.Run(tx, f.Token, needs, func(t *machine.Thread) error { out, more = machine.Next(t, n); return nil }); err != nil || more == nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// FinishDelivery records what became of a send (D3, D4).
func (e *Engine) FinishDelivery(ctx context.Context, r store.Ref, f store.Fence, fin store.FinishDelivery) (out store.Delivery, err error) {
	err = e.transition(ctx, r, f, false, machine.SentNeeds(fin.EventID), func(t *machine.Thread) error {
		out, err = machine.Sent(t, fin)
		out.Thread = r.Thread
		return err
	})
	return out, err
}

// ListDeliveries answers rows after an event id, oldest first.
func (e *Engine) ListDeliveries(ctx context.Context, r store.Ref, state string, after int64, limit int) ([]store.Delivery, error) {
	return view(ctx, e, r, func(tx *db.Tx) ([]store.Delivery, error) { return journal.Deliveries(tx, r, state, after, limit) })
}

// ResolveDelivery retries or drops a dead delivery.
func (e *Engine) ResolveDelivery(ctx context.Context, r store.Ref, eventID int64, how string) (out store.Delivery, err error) {
	err = e.do(ctx, r, true, func(tx *db.Tx) error {
		return journal.Run(tx, 0, machine.SentNeeds(eventID), func(t *machine.Thread) error {
			out, err = machine.Resolve(t, how)
			out.Thread = r.Thread
			return err
		})
	})
	return out, err
}
