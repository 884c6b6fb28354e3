package postgres

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/journal"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

var _ store.Engine = (*Engine)(nil)

// Begin claims an event and records it (T1, T2).
func (e *Engine) Begin(ctx context.Context, r store.Ref, f store.Fence, b store.Begin) (store.Begun, error) {
	s := journal.Begin(b)
	err := e.fenced(ctx, r, f, s)
	return s.Out, err
}

// Record journals steps and failed tries (T3, T4, T6).
func (e *Engine) Record(ctx context.Context, r store.Ref, f store.Fence, rec store.Record) (int, error) {
	s := journal.Record(rec)
	err := e.fenced(ctx, r, f, s)
	return s.Out, err
}

// Steer adds members to a running turn.
func (e *Engine) Steer(ctx context.Context, r store.Ref, f store.Fence, st store.Steer) (store.Step, error) {
	s := journal.Steer(st)
	err := e.fenced(ctx, r, f, s)
	return s.Out, err
}

// Finish gives the turn its fate (T7 or T9), and with it the inbox its own (T8).
func (e *Engine) Finish(ctx context.Context, r store.Ref, f store.Fence, fin store.Finish) (store.Finished, error) {
	s := journal.Finish(fin)
	if fin.InboxID == 0 {
		err := e.fenced(ctx, r, f, s)
		return s.Out, err
	}
	end := &endStep{Step: s, settle: journal.Settle(store.Settlement{InboxID: fin.InboxID}), fin: fin}
	err := e.fenced(ctx, r, f, end)
	s.Out.Settled, s.Out.Acked = err == nil, end.settle.Out
	return s.Out, err
}

// endStep ends a turn in its conversation and in the inbox at once: one commit, and no
// instant at which one has ended and the other has not.
type endStep struct {
	*journal.Step[store.Finished]
	settle *journal.SettleStep
	fin    store.Finish
}

func (s *endStep) Joint() string { return thread.Inbox }

func (s *endStep) Load(tx *unit.Tx) {
	s.Step.Load(tx)
	s.settle.Load(tx.JointTx())
}

func (s *endStep) Decide(ctx context.Context, tx *unit.Tx) error {
	if err := s.Step.Decide(ctx, tx); err != nil {
		return err
	}
	out := s.Out
	s.settle.As(store.Settlement{
		InboxID: s.fin.InboxID, Key: s.fin.Key, Thread: tx.Ref.Thread, Fate: out.Fate,
		OutboxHead: out.OutboxHead, Error: s.fin.Error, Merged: out.Merged,
	})
	return s.settle.Decide(ctx, tx.JointTx())
}

// ResetCrashes forgets the claims of turns that were given back cleanly.
func (e *Engine) ResetCrashes(ctx context.Context, r store.Ref, keys []string) error {
	return e.do(ctx, r, journal.Release(keys))
}

// Claimed reports whether the thread has a turn under key.
func (e *Engine) Claimed(ctx context.Context, r store.Ref, key string) (bool, error) {
	s := journal.Claimed(key)
	err := e.view(ctx, r, s)
	return s.Out, err
}

// SayID answers the event with the key of a Say.
func (e *Engine) SayID(ctx context.Context, r store.Ref, key string) (int64, error) {
	s := journal.SayID(key)
	err := e.view(ctx, r, s)
	return s.Out, err
}

// Turn answers the account of an inbox event from the inbox and, when the event was
// claimed, from its conversation thread.
func (e *Engine) Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error) {
	s := journal.Turn(q)
	if err := e.view(ctx, store.Inbox(agent), s); err != nil || s.Out.Thread == "" {
		return s.Out, err
	}
	t := s.Out
	err := e.view(ctx, store.Ref{Agent: agent, Thread: t.Thread}, journal.Explain(&t))
	if absent(err) {
		return s.Out, nil // not claimed yet, or its thread was removed since
	}
	return t, err
}

// SumUsage adds up the journalled answers of a thread.
func (e *Engine) SumUsage(ctx context.Context, r store.Ref, q store.SumUsage) ([]store.UsageSum, error) {
	s := journal.SumUsage(q)
	err := e.view(ctx, r, s)
	return s.Out, err
}

// LastAnswer answers the newest answer of a model in a thread.
func (e *Engine) LastAnswer(ctx context.Context, r store.Ref, since time.Time) (store.UsageSum, error) {
	s := journal.LastAnswer(since)
	err := e.view(ctx, r, s)
	return s.Out, err
}

// NextDelivery answers the first undelivered event and counts the attempt (D1).
func (e *Engine) NextDelivery(ctx context.Context, r store.Ref, f store.Fence, n store.NextDelivery) (store.DueDelivery, error) {
	s := journal.Next(n)
	err := e.fenced(ctx, r, f, s)
	return s.Out, err
}

// FinishDelivery records what became of a send (D3, D4).
func (e *Engine) FinishDelivery(ctx context.Context, r store.Ref, f store.Fence, fin store.FinishDelivery) (store.Delivery, error) {
	s := journal.Sent(fin)
	err := e.fenced(ctx, r, f, s)
	s.Out.Thread = r.Thread
	return s.Out, err
}

// ListDeliveries answers rows after an event id, oldest first.
func (e *Engine) ListDeliveries(ctx context.Context, r store.Ref, state string, after int64, limit int) ([]store.Delivery, error) {
	s := journal.Deliveries(state, after, limit)
	err := e.view(ctx, r, s)
	return s.Out, err
}

// ResolveDelivery retries or drops a dead delivery.
func (e *Engine) ResolveDelivery(ctx context.Context, r store.Ref, eventID int64, how string) (store.Delivery, error) {
	s := journal.ResolveDelivery(eventID, how)
	err := e.do(ctx, r, s)
	s.Out.Thread = r.Thread
	return s.Out, err
}
