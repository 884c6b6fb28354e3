package registry

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func ref(t *registryv1.ThreadRef) store.Ref {
	return store.Ref{Agent: t.GetAgentId(), Thread: t.GetThreadId()}
}

// EnsureThread makes a thread when it is absent.
func (s *Service) EnsureThread(ctx context.Context, req *registryv1.EnsureThreadRequest) (*registryv1.EnsureThreadResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.dir.Get(r.Agent); err != nil {
		return nil, err
	}
	created, err := s.store.Ensure(ctx, r, "")
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	path, err := s.dir.Path(r)
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	return &registryv1.EnsureThreadResponse{Created: created, Path: path}, nil
}

// PushEvents appends events durably (T0).
func (s *Service) PushEvents(ctx context.Context, req *registryv1.PushEventsRequest) (*registryv1.PushEventsResponse, error) {
	r := ref(req.GetThread())
	a, err := s.dir.Get(r.Agent)
	if err != nil {
		return nil, err
	}
	o := store.AppendOptions{Key: req.GetIdempotencyKey()}
	if o.Fence, err = s.mayPush(ctx, r, req.GetEvents()); err != nil {
		return nil, err
	}
	events, err := newEvents(req.GetEvents())
	if err != nil {
		return nil, err
	}
	if r.IsInbox() {
		o.MaxPending, o.MaxPerPeer = s.cfg.MaxPending, s.cfg.MaxPerPeer
	}
	if err := s.checkDisk(); err != nil {
		return nil, err
	}
	fault.Point("T0.before")
	out, err := s.store.Append(ctx, r, events, o)
	// After the commit: an acknowledged message must have a directory to be in.
	if gone := s.present(r.Agent); gone != nil {
		return nil, gone
	}
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	fault.Point("T0.after")
	if out.Duplicate {
		s.metrics.DedupHits.Inc()
	} else {
		s.metrics.Pushes.Inc()
	}
	if r.IsInbox() && !a.Known().Loaded {
		// A push to an agent not looked at yet: its start-up load makes it due.
		_ = s.load(ctx, a)
	}
	return &registryv1.PushEventsResponse{EventIds: out.IDs, Duplicate: out.Duplicate}, nil
}

// mayPush says who may write what where. The inbox takes events from anybody
// the caller may speak for; every other thread, and the name self, belong to the
// holder of the agent's lease.
func (s *Service) mayPush(ctx context.Context, r store.Ref, events []*registryv1.NewEvent) (*store.Fence, error) {
	fence, hasFence := fenceOf(ctx)
	own := hasFence && (fence.Resource == lease.AgentResource(r.Agent) || fence.Resource == lease.DeliverResource(r.Agent))
	if !r.IsInbox() && !own {
		return nil, fault.New(codes.PermissionDenied, fault.PermissionDenied, "only the agent itself writes to thread '"+r.Thread+"'", "push to its inbox instead")
	}
	id, _ := rpc.IdentityFrom(ctx)
	for _, e := range events {
		a, _, err := source.ParseLenient(e.GetSource())
		if err != nil {
			return nil, err
		}
		switch {
		case a.Kind == source.Self && !own:
			return nil, fault.New(codes.PermissionDenied, fault.SourceForbidden, "source self needs the agent's lease", "state who speaks, such as external:console:cli:dm:cli:cli")
		case id.Kind == rpc.Service && a.Kind == source.Internal && !s.speaksFor(hasFence, fence, a.AgentID):
			return nil, fault.New(codes.PermissionDenied, fault.SourceForbidden, "source "+e.GetSource()+" is not the caller's own", "push with the lease of the agent that speaks")
		}
	}
	if own {
		return &fence, nil
	}
	return nil, nil
}

// speaksFor tells whether a live lease of agentID vouches for its name.
func (s *Service) speaksFor(has bool, f store.Fence, agentID string) bool {
	return has && strings.HasSuffix(f.Resource, "/"+agentID) && s.leases.Check(f.Resource, f.Token) == nil
}

var errNotText = fault.New(codes.InvalidArgument, fault.InvalidArgument, "the event is not valid UTF-8", "encode it as UTF-8")

func tooLarge(content string) error {
	return fault.New(codes.InvalidArgument, fault.EventTooLarge, fmt.Sprintf("the event has %d bytes, the most is %d", len(content), thread.MaxEvent), "send less, or put it into a file and send its name")
}

func newEvents(in []*registryv1.NewEvent) ([]store.NewEvent, error) {
	out, sum := make([]store.NewEvent, len(in)), 0
	for i, e := range in {
		if e.GetType() != thread.TypeMessage && e.GetType() != thread.TypeRecord {
			return nil, usage(fmt.Sprintf("event type %q is unknown", e.GetType()), "use message or record")
		}
		if !utf8.ValidString(e.GetContent()) {
			return nil, errNotText
		}
		if len(e.GetContent()) > thread.MaxEvent {
			return nil, tooLarge(e.GetContent())
		}
		out[i] = store.NewEvent{Source: e.GetSource(), Type: e.GetType(), Subtype: e.Subtype, Content: e.GetContent()}
		sum += len(e.GetContent()) + len(e.GetSource()) + 64
	}
	if sum > thread.MaxAnswer {
		return nil, fault.New(codes.InvalidArgument, fault.EventTooLarge, fmt.Sprintf("the push has %d bytes, the most is %d", sum, thread.MaxAnswer), "push in smaller batches")
	}
	return out, nil
}

func fenceOf(ctx context.Context) (store.Fence, bool) {
	res, token, _, ok := rpc.FenceFrom(ctx)
	return store.Fence{Resource: res, Token: token}, ok
}

// underLease answers the fence of a call that must have one for a resource.
func underLease(ctx context.Context, resource string) (store.Fence, error) {
	f, ok := fenceOf(ctx)
	if !ok || f.Resource != resource {
		return f, fault.New(codes.Aborted, fault.LeaseLost, "the call carries no lease of "+resource, "acquire the lease first")
	}
	return f, nil
}

func parseFilter(text string) (*filter.Filter, error) {
	if text == "" {
		return nil, nil
	}
	return filter.Parse(text)
}

func limitOf(n int32, def int) int {
	if n <= 0 {
		return def
	}
	return int(n)
}

// PeekEvents reads events.
func (s *Service) PeekEvents(ctx context.Context, req *registryv1.PeekEventsRequest) (*registryv1.PeekEventsResponse, error) {
	r := ref(req.GetThread())
	f, err := parseFilter(req.GetFilter())
	if err != nil {
		return nil, err
	}
	if _, err := s.dir.Get(r.Agent); err != nil {
		return nil, err
	}
	p, err := s.store.Read(ctx, r, store.Query{After: req.GetAfterId(), Limit: limitOf(req.GetLimit(), 100), Filter: f, Tail: req.GetTail()})
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	return &registryv1.PeekEventsResponse{Events: toEvents(p.Events), More: p.More, HeadId: p.Head}, nil
}

func toEvents(in []thread.Event) []*registryv1.Event {
	out := make([]*registryv1.Event, len(in))
	for i, e := range in {
		out[i] = toEvent(e)
	}
	return out
}

func toEvent(e thread.Event) *registryv1.Event {
	out := &registryv1.Event{Id: e.ID, CreatedAt: sayable(e.CreatedAt), Source: sayable(e.Source), Type: sayable(e.Type), Content: sayable(e.Content)}
	if e.Subtype != nil {
		out.Subtype = new(sayable(*e.Subtype))
	}
	return out
}

// PopEvents acknowledges, then reads through the consumer's filter.
func (s *Service) PopEvents(ctx context.Context, req *registryv1.PopEventsRequest) (*registryv1.PopEventsResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.dir.Get(r.Agent); err != nil {
		return nil, err
	}
	in, err := s.store.Info(ctx, r)
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	var f *filter.Filter
	for _, sub := range in.Subscriptions {
		if sub.Consumer == req.GetConsumer() && sub.Filter != nil {
			if f, err = parseFilter(*sub.Filter); err != nil {
				return nil, err
			}
		}
	}
	if _, err := s.store.Ack(ctx, r, req.GetConsumer(), req.GetAfterId(), false); err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	p, err := s.store.Read(ctx, r, store.Query{After: req.GetAfterId(), Limit: limitOf(req.GetLimit(), 100), Filter: f})
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	return &registryv1.PopEventsResponse{Events: toEvents(p.Events), More: p.More}, nil
}

// AckEvents moves a consumer forward.
func (s *Service) AckEvents(ctx context.Context, req *registryv1.AckEventsRequest) (*registryv1.AckEventsResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.dir.Get(r.Agent); err != nil {
		return nil, err
	}
	id, err := s.store.Ack(ctx, r, req.GetConsumer(), req.GetId(), true)
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
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
	if _, err := s.dir.Get(r.Agent); err != nil {
		return nil, err
	}
	sub := store.Subscription{Consumer: req.GetConsumer(), Handler: req.GetHandler()}
	if f := req.GetFilter(); f != "" {
		sub.Filter = &f
	}
	return &registryv1.SubscribeResponse{}, s.edge(r.Agent, r.Thread, s.store.Subscribe(ctx, r, sub))
}

// Unsubscribe removes a consumer.
func (s *Service) Unsubscribe(ctx context.Context, req *registryv1.UnsubscribeRequest) (*registryv1.UnsubscribeResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.dir.Get(r.Agent); err != nil {
		return nil, err
	}
	return &registryv1.UnsubscribeResponse{}, s.edge(r.Agent, r.Thread, s.store.Unsubscribe(ctx, r, req.GetConsumer()))
}

// GetThread describes a thread.
func (s *Service) GetThread(ctx context.Context, req *registryv1.GetThreadRequest) (*registryv1.GetThreadResponse, error) {
	r := ref(req.GetThread())
	if _, err := s.dir.Get(r.Agent); err != nil {
		return nil, err
	}
	in, err := s.store.Info(ctx, r)
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	path, err := s.dir.Path(r)
	if err != nil {
		return nil, s.edge(r.Agent, r.Thread, err)
	}
	out := &registryv1.GetThreadResponse{Uuid: in.UUID, EventCount: in.Count, HeadId: in.Head, Path: path}
	for _, sub := range in.Subscriptions {
		out.Subscriptions = append(out.Subscriptions, &registryv1.Subscription{
			Consumer: sub.Consumer, Handler: sub.Handler, Filter: sub.Filter, LastAckedId: sub.Acked, UpdatedAt: sub.UpdatedAt,
		})
	}
	return out, nil
}

// ListThreads answers the conversation threads of an agent.
func (s *Service) ListThreads(ctx context.Context, req *registryv1.ListThreadsRequest) (*registryv1.ListThreadsResponse, error) {
	dir, err := s.dirOf(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	size := limitOf(req.GetPageSize(), 1000)
	ids, err := dir.ListThreads(ctx, req.GetPageToken(), size)
	if err != nil {
		return nil, s.edge(req.GetAgentId(), "", err)
	}
	out := &registryv1.ListThreadsResponse{ThreadIds: ids}
	if len(ids) == size {
		out.NextPageToken = ids[size-1]
	}
	return out, nil
}
