package deliveries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// decision is the content of the record of what hooks decided about a message. The key of the record is the one of
// its delivery, so that there is one.
type decision struct {
	EventID int64   `json:"event_id"`
	Hook    string  `json:"hook"`
	Cancel  bool    `json:"cancel,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Text    *string `json:"text,omitempty"`
}

func (d decision) proto() *registryv1.HookDecision {
	return &registryv1.HookDecision{Hook: d.Hook, Cancel: d.Cancel, Reason: d.Reason, Text: d.Text}
}

// withHooks adds to a delivery that was begun what hooks have decided about it, and the hooks of its agent.
func (s *Service) withHooks(ctx context.Context, r store.Ref, hooks []hook.Hook, d store.DueDelivery, out *registryv1.BeginDeliveryResponse) (err error) {
	if len(hooks) == 0 && !d.Tried {
		return nil
	}
	if out.Decision, err = s.decided(ctx, r, d.Key); err != nil || len(hooks) == 0 {
		return err
	}
	out.Hooks = hook.Proto(hooks)
	se, err := s.Store.Session(ctx, r)
	if errors.Is(err, store.ErrNoSession) {
		return nil
	}
	out.SessionKey = se.Key
	return err
}

// decided returns the decision that is recorded; nil: there is none.
func (s *Service) decided(ctx context.Context, r store.Ref, key string) (*registryv1.HookDecision, error) {
	at, ok, err := s.Store.Pushed(ctx, r, machine.DecisionKey(key))
	if err != nil || !ok || len(at.IDs) == 0 {
		return nil, err
	}
	p, err := s.Store.Read(ctx, r, store.Query{After: at.IDs[0] - 1, Upto: at.IDs[0], Limit: 1})
	if err != nil || len(p.Events) == 0 {
		return nil, err // it was erased with its message
	}
	var d decision
	if err := json.Unmarshal([]byte(p.Events[0].Content), &d); err != nil {
		return nil, fmt.Errorf("read the decision of hooks about %s: %w", key, err)
	}
	return d.proto(), nil
}

// DecideDelivery records what hooks decided. The first decision stands, and is the answer to every later call.
func (s *Service) DecideDelivery(ctx context.Context, req *registryv1.DecideDeliveryRequest) (*registryv1.DecideDeliveryResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	fence, err := wire.RequireFence(ctx, lease.DeliverResource(a.ID))
	if err != nil {
		return nil, err
	}
	return s.decide(ctx, a, fence, req)
}

func (s *Service) decide(ctx context.Context, a *state.Agent, fence store.Fence, req *registryv1.DecideDeliveryRequest) (*registryv1.DecideDeliveryResponse, error) {
	r, in := store.Ref{Agent: a.ID, Thread: req.GetThreadId()}, req.GetDecision()
	// One holder of the lease works on a thread at a time: nothing is recorded between the look and the append.
	before, err := s.decided(ctx, r, req.GetKey())
	if err != nil {
		return nil, s.Fault(a.ID, r.Thread, err)
	}
	if before != nil {
		return &registryv1.DecideDeliveryResponse{Decision: before}, nil
	}
	content, err := json.Marshal(decision{req.GetEventId(), in.GetHook(), in.GetCancel(), in.GetReason(), in.Text}) //nolint:protogetter // unset is not empty
	if err != nil {
		return nil, err
	}
	subtype := thread.SubtypeHook
	_, err = s.Store.Append(ctx, r, []store.NewEvent{{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &subtype, Content: string(content)}},
		store.AppendOptions{Key: machine.DecisionKey(req.GetKey()), Fence: &fence})
	if err != nil {
		return nil, s.Fault(a.ID, r.Thread, err)
	}
	fault.Point("hook.decided") // killed here: the decision stands
	return &registryv1.DecideDeliveryResponse{Decision: proto.CloneOf(in)}, nil
}
