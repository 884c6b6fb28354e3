package postgres

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/consumer"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// Read answers a page of events.
func (e *Engine) Read(ctx context.Context, r store.Ref, q store.Query) (store.Page, error) {
	s := &readStep{q: q}
	err := e.view(ctx, r, s)
	return s.out, err
}

type readStep struct {
	q   store.Query
	out store.Page
}

func (s *readStep) Load(tx *unit.Tx) {
	p := unit.Page{Where: "id > $3", Args: []any{s.q.After}, Desc: s.q.Tail, Limit: s.q.Limit, Budget: s.q.MaxBytes}
	if p.Budget <= 0 {
		p.Budget = thread.MaxAnswer
	}
	if s.q.Upto > 0 {
		p.Where, p.Args = p.Where+" AND id <= $4", append(p.Args, s.q.Upto)
	}
	if cond, bound := s.q.Filter.Numbered(len(p.Args) + 3); cond != "" {
		p.Where, p.Args = p.Where+" AND ("+cond+")", append(p.Args, bound...)
	}
	tx.Page(p, &s.out.Events, &s.out.More)
}

func (s *readStep) Decide(_ context.Context, tx *unit.Tx) error {
	s.out.Head = tx.Head
	return nil
}

// Info describes a thread.
func (e *Engine) Info(ctx context.Context, r store.Ref) (store.Info, error) {
	s := &infoStep{}
	err := e.view(ctx, r, s)
	return s.out, err
}

type infoStep struct {
	consumer.ListStep
	out store.Info
}

func (s *infoStep) Load(tx *unit.Tx) {
	s.ListStep.Load(tx)
	tx.One("SELECT count(*) FROM event WHERE agent_id = $1 AND thread_id = $2", nil, nil, &s.out.Count)
}

func (s *infoStep) Decide(_ context.Context, tx *unit.Tx) error {
	s.out.UUID, s.out.Head, s.out.LastAt, s.out.Subscriptions = tx.UUID, tx.Head, tx.LastAt, s.Out
	return nil
}

// Subscriptions answers the consumers in the order they were made.
func (e *Engine) Subscriptions(ctx context.Context, r store.Ref) ([]store.Subscription, error) {
	s := &consumer.ListStep{}
	err := e.view(ctx, r, s)
	return s.Out, err
}

// Subscribe adds a consumer.
func (e *Engine) Subscribe(ctx context.Context, r store.Ref, s store.Subscription) error {
	return e.do(ctx, r, consumer.Add(s))
}

// Unsubscribe removes a consumer and keeps its progress.
func (e *Engine) Unsubscribe(ctx context.Context, r store.Ref, name string) error {
	return e.do(ctx, r, consumer.Remove(name))
}

// Ack moves a consumer's progress as the external pop does; what our own consumers
// have acked is not touched.
func (e *Engine) Ack(ctx context.Context, r store.Ref, name string, id int64, forward bool) (int64, error) {
	s := consumer.Move(name, id, forward)
	err := e.do(ctx, r, s)
	return s.Out, err
}
