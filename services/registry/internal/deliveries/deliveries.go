// Package deliveries implements DeliveryService: a deliverer takes what is to be sent
// (D1) and records the outcome (D3, D4), and people list and resolve dead letters.
//
// It promises that only the holder of the agent's deliver lease begins and finishes a
// send, and that the progress of each thread is also recorded in the agent's inbox
// database. It sends nothing.
package deliveries

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Agents gives access to the agents of the registry.
type Agents interface {
	Get(id string) (*state.Agent, error)
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
	// ToDeliver makes the replies of a thread due that reach up to head.
	ToDeliver(a *state.Agent, threadID string, head int64)
}

// Wakes notifies the calls that wait for a fate.
type Wakes interface{ FateChanged(agent string) }

// Store stores deliveries.
type Store interface {
	store.Deliveries
	Seal(ctx context.Context, agent string, f store.Fence) error
	MarkOutbox(ctx context.Context, agent string, m store.OutboxMark) error
	Read(ctx context.Context, r store.Ref, q store.Query) (store.Page, error)
	Append(ctx context.Context, r store.Ref, events []store.NewEvent, o store.AppendOptions) (store.Appended, error)
	Pushed(ctx context.Context, r store.Ref, key string) (store.Appended, bool, error)
	Session(ctx context.Context, r store.Ref) (store.Session, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Store  Store
	Agents Agents
	Wakes  Wakes
	Log    wire.Log
	// Waits are those before the second and each later try of a send; nil for the store's
	// own.
	Waits      []time.Duration
	Generation *store.Generation
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedDeliveryServiceServer
	Deps
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d} }

// BeginDelivery takes the next undelivered event of a thread (D1).
func (s *Service) BeginDelivery(ctx context.Context, req *registryv1.BeginDeliveryRequest) (*registryv1.BeginDeliveryResponse, error) {
	a, fence, set, err := s.deliveryCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	return s.nextDelivery(ctx, a, fence, set, req.GetThreadId(), store.NextDelivery{Peek: req.GetPeek(), WithRun: req.GetWithRun()})
}

func (s *Service) deliveryCall(ctx context.Context, id string) (*state.Agent, store.Fence, *agentdir.Agent, error) {
	a, err := s.Agents.Get(id)
	if err != nil {
		return nil, store.Fence{}, nil, err
	}
	fence, err := wire.RequireFence(ctx, lease.DeliverResource(id))
	if err != nil {
		return nil, fence, nil, err
	}
	if a.Fence(fence.Resource) < fence.Token {
		// The first call of a term, before any thread sees its token.
		if err := s.Store.Seal(ctx, a.ID, fence); err != nil {
			return nil, fence, nil, s.Fault(a.ID, thread.Inbox, err)
		}
		a.NoteSeal(fence.Resource, fence.Token)
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		a.SetError(err)
	}
	return a, fence, set, err
}

func (s *Service) nextDelivery(ctx context.Context, a *state.Agent, fence store.Fence, set *agentdir.Agent, threadID string, n store.NextDelivery) (*registryv1.BeginDeliveryResponse, error) {
	r := store.Ref{Agent: a.ID, Thread: threadID}
	n.BootID, n.Since = s.Generation.Current()
	if !n.Since.IsZero() {
		n.Elapsed = time.Since(n.Since)
	}
	hooks := hook.For(set.Hooks, a.ID, hook.MessageSending, hook.MessageSent)
	n.WithRun = n.WithRun || len(hooks) > 0
	n.MaxAge, n.MaxAttempts = set.Config.Deliver.MaxAge, set.Config.Deliver.MaxAttempts
	wait, err := s.pause(ctx, r, fence, set.Config.HumanDelay, n)
	if err != nil {
		return nil, s.Fault(a.ID, threadID, err)
	}
	if wait > 0 {
		return &registryv1.BeginDeliveryResponse{Outcome: registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_WAIT, Wait: durationpb.New(wait)}, nil
	}
	if !n.Peek {
		fault.Point("D1.before")
	}
	d, err := s.Store.NextDelivery(ctx, r, fence, n)
	if err != nil {
		return nil, s.Fault(a.ID, threadID, err)
	}
	if !n.Peek {
		fault.Point("D1.after")
	}
	// An I/O error meanwhile may have taken the record of an earlier send.
	d.MaybeDuplicate = d.MaybeDuplicate || n.BootID != s.Generation.Name()
	out := &registryv1.BeginDeliveryResponse{Wait: durationpb.New(d.Wait)}
	switch d.Outcome {
	case store.DueIdle:
		out.Outcome = registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_IDLE
		return out, s.mark(ctx, a, threadID, d.Acked, d.Dead)
	case store.DueWait:
		out.Outcome = registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_WAIT
		return out, nil
	}
	out.Outcome = registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_SEND
	out.Event, out.Key, out.Attempt, out.MaybeDuplicate, out.RunId = wire.Event(d.Event), d.Key, int32(d.Attempt), d.MaybeDuplicate, d.Run
	out.MaxChars, out.Parts, out.Reach = int32(set.Config.Deliver.MaxChars), int32(d.Parts), d.Reach
	out.OutboundSet = set.Config.Outbound != nil
	for _, o := range set.Config.Outbound {
		out.Outbound = append(out.Outbound, &registryv1.OutboundRule{ThreadPattern: o.ThreadPattern, Via: o.Via})
	}
	for name, c := range set.Config.Channels {
		out.Channels = append(out.Channels, &registryv1.ChannelConfig{Name: name, Type: c.Type, Url: c.URL, Secret: c.Secret, AllowPrivate: c.AllowPrivate})
	}
	if len(set.Accounts) > 0 && set.Config.Outbound == nil {
		if a := account(set.Accounts, d.Event.Content); a != nil {
			out.Account, out.MaxChars = wireAccount(*a), least(out.GetMaxChars(), int32(a.MaxChars))
		}
	}
	if d.Event.Subtype != nil && *d.Event.Subtype == thread.SubtypeAction {
		if out.MessageId, err = s.changed(ctx, r, d.Event.Content); err != nil {
			return nil, err
		}
	}
	if n.Peek {
		return out, nil
	}
	return out, s.Fault(a.ID, threadID, s.withHooks(ctx, r, hooks, d, out))
}

// changed is the id at the platform of the message that an event changes, where it names an event before it; empty: that
// was not sent as one message.
func (s *Service) changed(ctx context.Context, r store.Ref, content string) (string, error) {
	var c struct {
		Event int64 `json:"event"`
	}
	if json.Unmarshal([]byte(content), &c) != nil || c.Event == 0 {
		return "", nil
	}
	list, err := s.Store.ListDeliveries(ctx, r, store.DeliverySent, c.Event-1, 1)
	if err != nil {
		return "", s.Fault(r.Agent, r.Thread, err)
	}
	if len(list) == 0 || list[0].EventID != c.Event || strings.Contains(list[0].ProviderID, ",") {
		return "", nil
	}
	return list[0].ProviderID, nil
}

// account is the account by which the message came that an event answers; nil: none.
func account(list []layer.Account, content string) *layer.Account {
	c, err := channel.ParseContent([]byte(content))
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(list, func(a layer.Account) bool { return a.Name == c.ReplyContext.ChannelID() })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func wireAccount(a layer.Account) *registryv1.ChannelConfig {
	return &registryv1.ChannelConfig{
		Name: a.Name, Type: a.Type, Url: a.URL, Secret: a.Secret, AllowPrivate: a.AllowPrivate, Token: a.Token, AppToken: a.AppToken, Api: a.API, Plugin: a.Plugin, ReplyTo: a.ReplyTo,
	}
}

// least is the smaller of two bounds, of which 0 is none.
func least(a, b int32) int32 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// mark stores a thread's delivery progress in the inbox database.
func (s *Service) mark(ctx context.Context, a *state.Agent, threadID string, acked, dead int64) error {
	a.Delivered(threadID, acked)
	return s.Fault(a.ID, threadID, s.Store.MarkOutbox(ctx, a.ID, store.OutboxMark{Thread: threadID, Acked: acked, Dead: dead}))
}

// FinishDelivery records a send (D3, D4), and begins the next one if asked to.
func (s *Service) FinishDelivery(ctx context.Context, req *registryv1.FinishDeliveryRequest) (*registryv1.FinishDeliveryResponse, error) {
	a, fence, set, err := s.deliveryCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.Log.Append(a.ID, req.GetLogs())
	label := "D3"
	if o := req.GetOutcome(); o == registryv1.DeliveryOutcome_DELIVERY_OUTCOME_FAILED || o == registryv1.DeliveryOutcome_DELIVERY_OUTCOME_REJECTED {
		label = "D4"
	}
	fault.Point(label + ".before")
	d, err := s.Store.FinishDelivery(ctx, store.Ref{Agent: a.ID, Thread: req.GetThreadId()}, fence, store.FinishDelivery{
		EventID: req.GetEventId(), Outcome: wire.ReadOutcome(req.GetOutcome()), Channel: req.GetChannel(), ProviderID: req.GetProviderId(),
		InDoubt: req.GetInDoubt(), Parts: int(req.GetParts()), Reach: req.GetReach(), Error: req.GetError(), RetryAfter: req.GetRetryAfter().AsDuration(), MaxAttempts: set.Config.Deliver.MaxAttempts, Waits: s.Waits,
	})
	if err != nil {
		return nil, s.Fault(a.ID, req.GetThreadId(), err)
	}
	fault.Point(label + ".after")
	if d.State == store.DeliveryDead {
		if err := s.mark(ctx, a, req.GetThreadId(), d.Acked, d.Dead); err != nil {
			return nil, err
		}
	}
	s.Wakes.FateChanged(a.ID)
	out := &registryv1.FinishDeliveryResponse{Delivery: wire.Delivery(a.ID, d)}
	if req.GetNext() {
		out.Next, err = s.nextDelivery(ctx, a, fence, set, req.GetThreadId(), store.NextDelivery{WithRun: req.GetWithRun()})
	}
	return out, err
}

// ListDeliveries returns deliveries by thread and event id.
func (s *Service) ListDeliveries(ctx context.Context, req *registryv1.ListDeliveriesRequest) (*registryv1.ListDeliveriesResponse, error) {
	if _, err := s.Agents.Get(req.GetAgentId()); err != nil {
		return nil, err
	}
	size := wire.Limit(req.GetPageSize(), 100)
	fromThread, after := cutToken(req.GetPageToken())
	out := &registryv1.ListDeliveriesResponse{}
	visit := func(threadID string) (full bool, err error) {
		from := int64(0)
		if req.GetThreadId() != "" {
			from = req.GetAfterEventId()
		}
		if threadID == fromThread {
			from = max(from, after)
		}
		list, err := s.Store.ListDeliveries(ctx, store.Ref{Agent: req.GetAgentId(), Thread: threadID}, wire.ReadDeliveryState(req.GetState()), from, size-len(out.GetDeliveries()))
		if err != nil {
			return false, s.Fault(req.GetAgentId(), threadID, err)
		}
		for _, d := range list {
			out.Deliveries = append(out.Deliveries, wire.Delivery(req.GetAgentId(), d))
		}
		if len(out.GetDeliveries()) < size {
			return false, nil
		}
		last := list[len(list)-1]
		out.NextPageToken = last.Thread + ":" + strconv.FormatInt(last.EventID, 10)
		return true, nil
	}
	if req.GetThreadId() != "" {
		_, err := visit(req.GetThreadId())
		return out, err
	}
	if fromThread != "" {
		if full, err := visit(fromThread); err != nil || full {
			return out, err
		}
	}
	for cursor := fromThread; ; {
		ids, err := s.Agents.Threads(ctx, req.GetAgentId(), cursor, 256)
		if err != nil {
			return nil, s.Fault(req.GetAgentId(), "", err)
		}
		for _, id := range ids {
			if full, err := visit(id); err != nil || full {
				return out, err
			}
		}
		if len(ids) < 256 {
			return out, nil
		}
		cursor = ids[len(ids)-1]
	}
}

// cutToken splits THREAD:EVENT at the last colon; thread ids may hold others.
func cutToken(token string) (threadID string, event int64) {
	i := strings.LastIndexByte(token, ':')
	if i < 0 {
		return "", 0
	}
	event, _ = strconv.ParseInt(token[i+1:], 10, 64)
	return token[:i], event
}

// RetryDelivery makes a dead delivery pending again.
func (s *Service) RetryDelivery(ctx context.Context, req *registryv1.RetryDeliveryRequest) (*registryv1.RetryDeliveryResponse, error) {
	d, a, err := s.resolveDelivery(ctx, req.GetAgentId(), req.GetThreadId(), req.GetEventId(), "retried")
	if err != nil {
		return nil, err
	}
	s.Agents.ToDeliver(a, req.GetThreadId(), req.GetEventId())
	return &registryv1.RetryDeliveryResponse{Delivery: wire.Delivery(a.ID, d)}, nil
}

// DropDelivery takes a dead delivery off the dead letters.
func (s *Service) DropDelivery(ctx context.Context, req *registryv1.DropDeliveryRequest) (*registryv1.DropDeliveryResponse, error) {
	_, _, err := s.resolveDelivery(ctx, req.GetAgentId(), req.GetThreadId(), req.GetEventId(), "dropped")
	if err != nil {
		return nil, err
	}
	return &registryv1.DropDeliveryResponse{}, nil
}

func (s *Service) resolveDelivery(ctx context.Context, agentID, threadID string, eventID int64, how string) (store.Delivery, *state.Agent, error) {
	a, err := s.Agents.Get(agentID)
	if err != nil {
		return store.Delivery{}, nil, err
	}
	d, err := s.Store.ResolveDelivery(ctx, store.Ref{Agent: agentID, Thread: threadID}, eventID, how)
	if err == nil {
		err = s.Store.MarkOutbox(ctx, agentID, store.OutboxMark{Thread: threadID, Acked: d.Acked, Dead: d.Dead, Reopen: how == "retried"})
	}
	return d, a, s.Fault(agentID, threadID, err)
}
