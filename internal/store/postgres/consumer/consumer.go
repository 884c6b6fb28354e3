// Package consumer owns who reads a thread and how far: subscriptions, and their
// progress.
//
// What our own consumers rely on, inbox and outbound, is thread.acked, which only
// rises. The table progress holds what a reader is shown: for ours a mirror of it,
// which a pop from outside may move, forwards or backwards, and changes nothing for us.
package consumer

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// Ack queues that our own consumer of the thread has come to id, and its mirror.
func Ack(tx *unit.Tx, consumer string, id int64) {
	if id <= tx.Acked {
		return
	}
	tx.Acked = id
	put(tx, consumer, id)
}

func put(tx *unit.Tx, consumer string, id int64) {
	tx.Exec(`INSERT INTO progress(agent_id, thread_id, consumer, acked, updated_at) VALUES($1,$2,$3,$4,$5)
		ON CONFLICT (agent_id, thread_id, consumer) DO UPDATE SET acked = excluded.acked, updated_at = excluded.updated_at`,
		consumer, id, thread.Stamp(tx.Time))
}

// subscribed reads one subscription.
const subscribed = "SELECT handler, filter FROM subscription WHERE agent_id = $1 AND thread_id = $2 AND consumer = $3"

// MoveStep sets a consumer's progress as the external pop does, and answers where it
// stands. Our own acks are not touched.
type MoveStep struct {
	consumer string
	id       int64
	forward  bool
	found    bool
	Out      int64
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
	tx.One("SELECT acked FROM progress WHERE agent_id = $1 AND thread_id = $2 AND consumer = $3", []any{s.consumer}, nil, &s.Out)
}

// Decide moves it.
func (s *MoveStep) Decide(_ context.Context, tx *unit.Tx) error {
	if !s.found {
		return store.ErrNoConsumer
	}
	if !s.forward || s.id > s.Out {
		s.Out = s.id
		put(tx, s.consumer, s.id)
	}
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

// Subscribed tells whether there was one.
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
	tx.Read(`SELECT s.consumer, s.handler, s.filter, COALESCE(p.acked, 0), COALESCE(p.updated_at, '') FROM subscription s
		LEFT JOIN progress p ON p.agent_id = s.agent_id AND p.thread_id = s.thread_id AND p.consumer = s.consumer
		WHERE s.agent_id = $1 AND s.thread_id = $2 ORDER BY s.made`, nil, func(scan func(...any) error) error {
		var sub store.Subscription
		err := scan(&sub.Consumer, &sub.Handler, &sub.Filter, &sub.Acked, &sub.UpdatedAt)
		s.Out = append(s.Out, sub)
		return err
	})
}

// Decide has nothing left to do.
func (s *ListStep) Decide(context.Context, *unit.Tx) error { return nil }
