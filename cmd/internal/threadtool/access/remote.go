package access

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// remote is a thread in the hands of a registry. Its connection is the Env's.
type remote struct {
	env *command.Env
	p   Place
}

func (r *remote) ref() *registry.ThreadRef {
	return &registry.ThreadRef{AgentId: r.p.Agent, ThreadId: r.p.Thread}
}

func (r *remote) make(ctx context.Context) (bool, error) {
	a, err := r.env.Threads().EnsureThread(ctx, &registry.EnsureThreadRequest{Thread: r.ref()})
	return a.GetCreated(), err
}

// Push has a key, so that a call repeated after a lost answer stores nothing twice.
func (r *remote) Push(ctx context.Context, events []store.NewEvent) ([]int64, error) {
	req := &registry.PushEventsRequest{Thread: r.ref(), IdempotencyKey: ulid.Make().String()}
	for _, n := range events {
		req.Events = append(req.Events, &registry.NewEvent{Source: n.Source, Type: n.Type, Subtype: n.Subtype, Content: n.Content})
	}
	a, err := r.env.Threads().PushEvents(ctx, req)
	return a.GetEventIds(), err
}

func (r *remote) Peek(ctx context.Context, q Query) ([]thread.Event, bool, error) {
	a, err := r.env.Threads().PeekEvents(ctx, &registry.PeekEventsRequest{Thread: r.ref(), AfterId: q.After, Limit: int32(min(q.Limit, page)), Filter: q.Filter.String()})
	var events []thread.Event
	for _, ev := range a.GetEvents() {
		events = append(events, thread.Event{ID: ev.GetId(), CreatedAt: ev.GetCreatedAt(), Source: ev.GetSource(), Type: ev.GetType(), Subtype: ev.Subtype, Content: ev.GetContent()})
	}
	return events, a.GetMore(), err
}

// Ack is the first half of a pop; AckEvents would refuse to go back.
func (r *remote) Ack(ctx context.Context, consumer string, id int64) error {
	_, err := r.env.Threads().PopEvents(ctx, &registry.PopEventsRequest{Thread: r.ref(), Consumer: consumer, AfterId: id, Limit: 1})
	return err
}

func (r *remote) Info(ctx context.Context) (store.Info, error) {
	a, err := r.env.Threads().GetThread(ctx, &registry.GetThreadRequest{Thread: r.ref()})
	in := store.Info{UUID: a.GetUuid(), Count: a.GetEventCount(), Head: a.GetHeadId()}
	for _, s := range a.GetSubscriptions() {
		in.Subscriptions = append(in.Subscriptions, store.Subscription{
			Consumer: s.GetConsumer(), Handler: s.GetHandler(), Filter: s.Filter, Acked: s.GetLastAckedId(), UpdatedAt: s.GetUpdatedAt(),
		})
	}
	return in, err
}

func (r *remote) Subscribe(ctx context.Context, s store.Subscription) error {
	req := &registry.SubscribeRequest{Thread: r.ref(), Consumer: s.Consumer, Handler: s.Handler}
	if s.Filter != nil {
		req.Filter = *s.Filter
	}
	_, err := r.env.Threads().Subscribe(ctx, req)
	return err
}

func (r *remote) Unsubscribe(ctx context.Context, consumer string) error {
	_, err := r.env.Threads().Unsubscribe(ctx, &registry.UnsubscribeRequest{Thread: r.ref(), Consumer: consumer})
	return err
}

func (r *remote) Close() error { return nil }
