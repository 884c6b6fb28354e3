// Package consumer stores the subscriptions of a thread and their progress.
//
// Our own consumers, inbox and outbound, depend on thread.acked, which only rises. Readers
// see it as well, so an ack writes no row but the thread's. A pop from outside may move the
// progress that readers see, forwards or backwards, until our next ack, and changes nothing
// for us: its row of the table progress records the ack during which it was written.
package consumer

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// own is our own consumer of the thread t.
const own = "CASE t.thread_id WHEN 'inbox' THEN 'inbox' ELSE 'outbound' END"

// Shown selects how far a reader is shown that each consumer of the agent $1 and the
// thread $2 has come, as consumer, acked and updated_at; there is no row of one that has
// not moved.
const Shown = `SELECT p.consumer, p.acked, p.updated_at FROM progress p JOIN thread t USING (agent_id, thread_id)
		WHERE agent_id = $1 AND thread_id = $2 AND (p.consumer <> ` + own + ` OR p.beside = t.acked AND (p.acked <> 0 OR p.updated_at <> ''))
	UNION ALL SELECT ` + own + `, t.acked, t.acked_at FROM thread t
		WHERE agent_id = $1 AND thread_id = $2 AND t.acked > 0 AND NOT EXISTS
			(SELECT 1 FROM progress p WHERE p.agent_id = $1 AND p.thread_id = $2 AND p.consumer = ` + own + ` AND p.beside = t.acked)`

// Unmoved makes rows of progress that show our own consumers of the agent $1 as not
// moved, where there are none: of one that comes from a store which showed it so.
const Unmoved = `INSERT INTO progress(agent_id, thread_id, consumer, acked, updated_at, beside)
	SELECT $1, t.thread_id, ` + own + `, 0, '', t.acked FROM thread t WHERE t.agent_id = $1 AND t.acked > 0 ON CONFLICT DO NOTHING`

// subscribed reads one subscription.
const subscribed = "SELECT handler, filter FROM subscription WHERE agent_id = $1 AND thread_id = $2 AND consumer = $3"

// MoveStep sets a consumer's progress as the external pop does, and answers where it
// stands. Our own acks are not touched.
type MoveStep struct {
	consumer string
	id       int64
	forward  bool
	found    bool
	Out      int64 // as it is shown
}

// Move goes back too, unless forward; store.ErrNoConsumer.
func Move(consumer string, id int64, forward bool) *MoveStep {
	return &MoveStep{consumer: consumer, id: id, forward: forward}
}

// Load reads where the consumer stands.
func (s *MoveStep) Load(tx *unit.Tx) {
	var h string
	var f *string
	tx.One(subscribed, []any{s.consumer}, &s.found, &h, &f)
	tx.One("SELECT x.acked FROM ("+Shown+") x WHERE x.consumer = $3", []any{s.consumer}, nil, &s.Out)
}

// Decide moves it.
func (s *MoveStep) Decide(_ context.Context, tx *unit.Tx) error {
	if !s.found {
		return store.ErrNoConsumer
	}
	if s.forward && s.id <= s.Out {
		return nil
	}
	s.Out = s.id
	tx.Exec(`INSERT INTO progress(agent_id, thread_id, consumer, acked, updated_at, beside) VALUES($1,$2,$3,$4,$5,$6)
		ON CONFLICT (agent_id, thread_id, consumer) DO UPDATE SET acked = excluded.acked, updated_at = excluded.updated_at, beside = excluded.beside`,
		s.consumer, s.id, thread.Stamp(tx.Time), tx.Acked)
	return nil
}

// KeepStep makes one of our own subscriptions as it must be; nothing is written when
// it is.
type KeepStep struct {
	consumer, handler string
	filter            *string
	found             bool
	nowHandler        string
	nowFilter         *string
}

// Keep is a step, or a part of one.
func Keep(consumer, handler string, filter *string) *KeepStep {
	return &KeepStep{consumer: consumer, handler: handler, filter: filter}
}

// Load reads the subscription.
func (s *KeepStep) Load(tx *unit.Tx) {
	tx.One(subscribed, []any{s.consumer}, &s.found, &s.nowHandler, &s.nowFilter)
}

// Subscribed reports whether there was one.
func (s *KeepStep) Subscribed() bool { return s.found }

// Decide writes it.
func (s *KeepStep) Decide(_ context.Context, tx *unit.Tx) error {
	if s.found && s.nowHandler == s.handler && (s.nowFilter == nil) == (s.filter == nil) && (s.filter == nil || *s.nowFilter == *s.filter) {
		return nil
	}
	tx.Exec(`INSERT INTO subscription(agent_id, thread_id, consumer, handler, filter) VALUES($1,$2,$3,$4,$5)
		ON CONFLICT (agent_id, thread_id, consumer) DO UPDATE SET handler = excluded.handler, filter = excluded.filter`, s.consumer, s.handler, s.filter)
	return nil
}

// AddStep adds a consumer.
type AddStep struct{ keep *KeepStep }

// Add is a step; store.ErrConsumerExists.
func Add(s store.Subscription) *AddStep { return &AddStep{Keep(s.Consumer, s.Handler, s.Filter)} }

// Load reads whether it is there.
func (s *AddStep) Load(tx *unit.Tx) { s.keep.Load(tx) }

// Decide adds it. Who subscribes the agent to its inbox before anybody has said whether
// it shall work says so with it.
func (s *AddStep) Decide(ctx context.Context, tx *unit.Tx) error {
	if s.keep.found {
		return store.ErrConsumerExists
	}
	if tx.IsInbox() && s.keep.consumer == thread.Inbox && tx.Desired == "" {
		tx.Desired = unit.Started
	}
	return s.keep.Decide(ctx, tx)
}

// RemoveStep removes a consumer and keeps its progress.
type RemoveStep struct{ keep *KeepStep }

// Remove is a step; store.ErrNoConsumer.
func Remove(consumer string) *RemoveStep { return &RemoveStep{Keep(consumer, "", nil)} }

// Load reads whether it is there.
func (s *RemoveStep) Load(tx *unit.Tx) { s.keep.Load(tx) }

// Decide removes it.
func (s *RemoveStep) Decide(_ context.Context, tx *unit.Tx) error {
	if !s.keep.found {
		return store.ErrNoConsumer
	}
	Drop(tx, s.keep.consumer)
	return nil
}

// Drop queues the end of a subscription, if there is one.
func Drop(tx *unit.Tx, consumer string) {
	tx.Exec("DELETE FROM subscription WHERE agent_id = $1 AND thread_id = $2 AND consumer = $3", consumer)
}

// ListStep answers the subscriptions in the order they were made.
type ListStep struct{ Out []store.Subscription }

// Load reads them.
func (s *ListStep) Load(tx *unit.Tx) {
	tx.Read(`SELECT s.consumer, s.handler, s.filter, COALESCE(x.acked, 0), COALESCE(x.updated_at, '') FROM subscription s
		LEFT JOIN (`+Shown+`) x ON x.consumer = s.consumer WHERE s.agent_id = $1 AND s.thread_id = $2 ORDER BY s.made`, nil, func(scan func(...any) error) error {
		var sub store.Subscription
		err := scan(&sub.Consumer, &sub.Handler, &sub.Filter, &sub.Acked, &sub.UpdatedAt)
		s.Out = append(s.Out, sub)
		return err
	})
}

// Decide has nothing left to do.
func (s *ListStep) Decide(context.Context, *unit.Tx) error { return nil }
