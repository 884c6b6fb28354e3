package turnapi

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/core"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// OpenBatch reads events without a fate, each with its route.
func (s *Service) OpenBatch(ctx context.Context, req *registryv1.OpenBatchRequest) (*registryv1.OpenBatchResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.AppendLog(a.ID, req.GetLogs())
	read := req.GetAfterId()
	wait := req.GetWait().AsDuration()
	if wait > 0 && s.Shared != nil {
		// With other registries beside this one, what is new is not known here alone:
		// who has work tells it, and nothing is looked for here.
		return &registryv1.OpenBatchResponse{HeadId: read, ScannedId: read}, nil
	}
	if wait > 0 {
		leave := s.Follow(a)
		defer func() { leave(read) }()
		if news, err := s.News(ctx, a, read, wait); err != nil || !news {
			return &registryv1.OpenBatchResponse{HeadId: read, ScannedId: read}, err
		}
		if set, err = a.Settings(s.Home); err != nil {
			core.Trouble(a, err)
			return nil, err
		}
	}
	if s.Shared == nil && !a.Started() || a.Damaged() {
		return &registryv1.OpenBatchResponse{}, nil
	}
	b, err := s.Store.OpenBatch(ctx, a.ID, fence, store.OpenBatch{
		After: req.GetAfterId(), Limit: wire.Limit(req.GetLimit(), 32), Mode: set.Config.Routing.Default, Route: wire.ThreadOf, IfStarted: s.Shared != nil,
		Claimed: func(ctx context.Context, e thread.Event, key, mode string) (bool, error) {
			return s.claimed(ctx, a.ID, e, key, mode)
		},
	})
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	if s.Shared == nil {
		a.Pushed(b.Head)
	}
	read = b.Scanned
	if b.Settled > 0 {
		s.settled(a, b.Acked)
	}
	out := &registryv1.OpenBatchResponse{HeadId: b.Head, ScannedId: b.Scanned, More: b.More, Concurrency: int32(set.Config.Run.Concurrency), QueueMode: wire.QueueMode(set.Config.Queue.Mode)}
	for _, p := range b.Events {
		a.Read(p.Event, p.Key)
		out.Events = append(out.Events, &registryv1.PendingEvent{Event: wire.Event(p.Event), Key: p.Key, ThreadId: p.Thread})
	}
	return out, nil
}

// claimed tells whether e was begun under a mode; only asked when the routing
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
