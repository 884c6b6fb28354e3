// Package threads implements ThreadService: it appends, reads, watches and acknowledges
// events, and manages the subscriptions of consumers.
//
// It promises that an acknowledged push is on disk in a directory that still exists, that
// no caller writes where it may not (the inbox is open, every other thread belongs to the
// holder of the agent's lease), and that an inbox takes no more than its limits. It knows
// no turn and no delivery.
package threads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/hub"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Limits of what an inbox takes beyond its ack.
type Limits struct {
	Pending int64 // events
	PerPeer int64 // the same for one source; a push counts once
}

// Store stores threads.
type Store interface {
	store.Threads
	InboxEvent(ctx context.Context, agent string, id int64) (thread.Event, string, error)
}

// Agents gives access to the agents of the registry.
type Agents interface {
	Get(id string) (*state.Agent, error)
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
	// Path returns the directory of a thread; "" where it has none.
	Path(r store.Ref) (string, error)
	Pushes
}

// Pushes is called before and after messages are stored.
type Pushes interface {
	// Space refuses new messages while there is no space for them.
	Space() error
	// Present returns an error when the agent went away while it was written to.
	Present(id string) error
	// Pushed is called after a message was stored.
	Pushed(ctx context.Context, a *state.Agent)
}

// Leases grants and checks leases.
type Leases interface {
	Check(ctx context.Context, resource string, token uint64) error
}

// Wakes notifies the calls that follow a thread.
type Wakes interface {
	Follow(r store.Ref) *hub.Follower[store.Ref, thread.Event]
	Again() <-chan time.Time
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Store   Store
	Agents  Agents
	Leases  Leases
	Wakes   Wakes
	Quota   *admission.Quota
	Limits  Limits
	Metrics *obs.RegistryMetrics
	Trace   *tracing.Tracer // nil: no traces
	Log     *slog.Logger
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedThreadServiceServer
	Deps
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d} }

func ref(t *registryv1.ThreadRef) store.Ref {
	return store.Ref{Agent: t.GetAgentId(), Thread: t.GetThreadId()}
}

func parseFilter(text string) (*filter.Filter, error) {
	if text == "" {
		return nil, nil
	}
	return filter.Parse(text)
}

// EnsureThread makes a thread when it is absent.
func (s *Service) EnsureThread(ctx context.Context, req *registryv1.EnsureThreadRequest) (*registryv1.EnsureThreadResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.Agents.Get(r.Agent); err != nil {
		return nil, err
	}
	path, err := s.Agents.Path(r)
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	if err := s.routable(ctx, r); err != nil {
		return nil, err
	}
	created, err := s.Store.Ensure(ctx, r, "")
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	return &registryv1.EnsureThreadResponse{Created: created, Path: path}, nil
}

// routable refuses an absent conversation thread under an id that no message is routed to: a
// watcher of it would wait in vain. One that another program has made is there.
func (s *Service) routable(ctx context.Context, r store.Ref) error {
	if route.Routable(r.Thread) {
		return nil
	}
	_, err := s.Store.Info(ctx, r)
	if !errors.Is(err, store.ErrNotFound) {
		return s.Fault(r.Agent, r.Thread, err)
	}
	return wire.Bad(fmt.Sprintf("no message is routed to thread %.200q", r.Thread),
		"use "+strings.Join(route.Stored(r.Thread), " or ")+", in which channel and peer are encoded")
}

// PeekEvents reads events.
func (s *Service) PeekEvents(ctx context.Context, req *registryv1.PeekEventsRequest) (*registryv1.PeekEventsResponse, error) {
	r := ref(req.GetThread())
	f, err := parseFilter(req.GetFilter())
	if err != nil {
		return nil, err
	}
	if _, err := s.Agents.Get(r.Agent); err != nil {
		return nil, err
	}
	p, err := s.Store.Read(ctx, r, store.Query{After: req.GetAfterId(), Limit: wire.Limit(req.GetLimit(), 100), Filter: f, Tail: req.GetTail()})
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	return &registryv1.PeekEventsResponse{Events: wire.Events(p.Events), More: p.More, HeadId: p.Head}, nil
}

// PopEvents acknowledges, then reads through the consumer's filter.
func (s *Service) PopEvents(ctx context.Context, req *registryv1.PopEventsRequest) (*registryv1.PopEventsResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.Agents.Get(r.Agent); err != nil {
		return nil, err
	}
	in, err := s.Store.Info(ctx, r)
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	var f *filter.Filter
	for _, sub := range in.Subscriptions {
		if sub.Consumer == req.GetConsumer() && sub.Filter != nil {
			if f, err = parseFilter(*sub.Filter); err != nil {
				return nil, err
			}
		}
	}
	if _, err := s.Store.Ack(ctx, r, req.GetConsumer(), req.GetAfterId(), false); err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	p, err := s.Store.Read(ctx, r, store.Query{After: req.GetAfterId(), Limit: wire.Limit(req.GetLimit(), 100), Filter: f})
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	return &registryv1.PopEventsResponse{Events: wire.Events(p.Events), More: p.More}, nil
}

// AckEvents moves a consumer forward.
func (s *Service) AckEvents(ctx context.Context, req *registryv1.AckEventsRequest) (*registryv1.AckEventsResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.Agents.Get(r.Agent); err != nil {
		return nil, err
	}
	id, err := s.Store.Ack(ctx, r, req.GetConsumer(), req.GetId(), true)
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	return &registryv1.AckEventsResponse{LastAckedId: id}, nil
}

// Subscribe adds a consumer. Its handler is for external dispatchers; nothing
// here ever runs it.
func (s *Service) Subscribe(ctx context.Context, req *registryv1.SubscribeRequest) (*registryv1.SubscribeResponse, error) {
	r := ref(req.GetThread())
	if _, err := parseFilter(req.GetFilter()); err != nil {
		return nil, err
	}
	if _, err := s.Agents.Get(r.Agent); err != nil {
		return nil, err
	}
	sub := store.Subscription{Consumer: req.GetConsumer(), Handler: req.GetHandler()}
	if f := req.GetFilter(); f != "" {
		sub.Filter = &f
	}
	return &registryv1.SubscribeResponse{}, s.Fault(r.Agent, r.Thread, s.Store.Subscribe(ctx, r, sub))
}

// Unsubscribe removes a consumer.
func (s *Service) Unsubscribe(ctx context.Context, req *registryv1.UnsubscribeRequest) (*registryv1.UnsubscribeResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.Agents.Get(r.Agent); err != nil {
		return nil, err
	}
	return &registryv1.UnsubscribeResponse{}, s.Fault(r.Agent, r.Thread, s.Store.Unsubscribe(ctx, r, req.GetConsumer()))
}

// GetThread describes a thread.
func (s *Service) GetThread(ctx context.Context, req *registryv1.GetThreadRequest) (*registryv1.GetThreadResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.Agents.Get(r.Agent); err != nil {
		return nil, err
	}
	in, err := s.Store.Info(ctx, r)
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	path, err := s.Agents.Path(r)
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	out := &registryv1.GetThreadResponse{Uuid: in.UUID, EventCount: in.Count, HeadId: in.Head, Path: path}
	for _, sub := range in.Subscriptions {
		out.Subscriptions = append(out.Subscriptions, &registryv1.Subscription{
			Consumer: sub.Consumer, Handler: sub.Handler, Filter: sub.Filter, LastAckedId: sub.Acked, UpdatedAt: sub.UpdatedAt,
		})
	}
	return out, nil
}

// ListThreads returns the conversation threads of an agent.
func (s *Service) ListThreads(ctx context.Context, req *registryv1.ListThreadsRequest) (*registryv1.ListThreadsResponse, error) {
	if _, err := s.Agents.Get(req.GetAgentId()); err != nil {
		return nil, err
	}
	size := wire.Limit(req.GetPageSize(), 1000)
	ids, err := s.Agents.Threads(ctx, req.GetAgentId(), req.GetPageToken(), size)
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), "", err)
	}
	out := &registryv1.ListThreadsResponse{ThreadIds: ids}
	if len(ids) == size {
		out.NextPageToken = ids[size-1]
	}
	return out, nil
}
