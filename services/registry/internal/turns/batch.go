package turns

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// maxFollow bounds the wait of a batch for events.
const maxFollow = 30 * time.Second

// OpenBatch reads events without a fate, each with its route.
func (s *Service) OpenBatch(ctx context.Context, req *registryv1.OpenBatchRequest) (*registryv1.OpenBatchResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.Log.Append(a.ID, req.GetLogs())
	aside := max(req.GetSetAside().AsDuration(), 0)
	if a.SetAside(aside); aside > 0 {
		return &registryv1.OpenBatchResponse{HeadId: req.GetAfterId(), ScannedId: req.GetAfterId()}, nil
	}
	wait := req.GetWait().AsDuration()
	if wait <= 0 {
		return s.open(ctx, a, fence, set, req)
	}
	after := req.GetAfterId()
	var out *registryv1.OpenBatchResponse
	answered, err := s.Turns.Follow(ctx, a, fence, after, min(wait, maxFollow), func() (scanned int64, some bool, err error) {
		set, err := s.Agents.Settings(ctx, a)
		if err != nil {
			a.SetError(err)
			return 0, false, err
		}
		if out, err = s.open(ctx, a, fence, set, req); err != nil {
			return 0, false, err
		}
		return out.GetScannedId(), out.GetMore() || out.GetScannedId() > after || len(out.GetEvents()) > 0, nil
	})
	if err != nil {
		return nil, err
	}
	if !answered { // nothing came
		return &registryv1.OpenBatchResponse{HeadId: after, ScannedId: after}, nil
	}
	return out, nil
}

// open reads now.
func (s *Service) open(ctx context.Context, a *state.Agent, fence store.Fence, set *agentdir.Agent, req *registryv1.OpenBatchRequest) (*registryv1.OpenBatchResponse, error) {
	if s.Agents.Stopped(a) || a.Damaged() {
		return &registryv1.OpenBatchResponse{}, nil
	}
	b, err := s.Store.OpenBatch(ctx, a.ID, fence, store.OpenBatch{
		After: req.GetAfterId(), Limit: wire.Limit(req.GetLimit(), 32), Mode: set.Config.Routing.Default, Route: wire.ThreadOf, IfStarted: true,
		Claimed: func(ctx context.Context, e thread.Event, key, mode string) (bool, error) {
			return s.claimed(ctx, a.ID, e, key, mode)
		},
	})
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	a.Pushed(b.Head)
	if b.Settled > 0 {
		s.settled(a, b.Acked)
	}
	out := &registryv1.OpenBatchResponse{HeadId: b.Head, ScannedId: b.Scanned, More: b.More, Concurrency: int32(set.Config.Run.Concurrency)}
	q := set.Config.Queue
	if out.QueueMode = wire.QueueMode(q.Mode); q.Debounce > 0 {
		out.QueueDebounce = durationpb.New(q.Debounce)
	}
	if q.Drop != config.DropNew {
		out.QueueCap = int32(q.Cap)
	}
	var known *agentdir.Agent // with all owners; nil: no command asked for them
	for _, p := range b.Events {
		a.CacheEvent(p)
		e := &registryv1.PendingEvent{Event: wire.Event(p.Event), Key: p.Key, ThreadId: p.Thread}
		if p.Origin != nil {
			e.SessionKey = p.Origin.Key
			if e.Command = wire.Command(p.Origin); e.GetCommand() != nil {
				if known == nil {
					if known, err = s.withOwners(ctx, set); err != nil {
						return nil, err
					}
				}
				e.FromOwner = fromOwner(known, p.Event.Source)
			}
		}
		out.Events = append(out.Events, e)
	}
	return out, nil
}

// claimed reports whether e was begun under a mode; only asked when the routing
// mode of an agent with waiting events has changed.
func (s *Service) claimed(ctx context.Context, agentID string, e thread.Event, key, mode string) (bool, error) {
	id, err := wire.ThreadOf(e, mode)
	if err != nil {
		return false, nil // it will be dead under any mode
	}
	begun, err := s.Store.Claimed(ctx, store.Ref{Agent: agentID, Thread: id}, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return begun, err
}
