package turnapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/core"
	"github.com/theclaw/agents/services/registry/internal/directory"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// OpenBatch reads events without a fate, each with its route.
func (s *Service) OpenBatch(ctx context.Context, req *registryv1.OpenBatchRequest) (*registryv1.OpenBatchResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.AppendLog(a.ID, req.GetLogs())
	wait := req.GetWait().AsDuration()
	if wait <= 0 {
		return s.open(ctx, a, fence, set, req)
	}
	if s.Shared != nil {
		return s.follow(ctx, a, fence, req)
	}
	read := req.GetAfterId()
	leave := s.Follow(a)
	defer func() { leave(read) }()
	if news, err := s.News(ctx, a, read, wait); err != nil || !news {
		return nothing(req), err
	}
	if set, err = a.Settings(s.Home); err != nil {
		core.Trouble(a, err)
		return nil, err
	}
	out, err := s.open(ctx, a, fence, set, req)
	read = max(read, out.GetScannedId())
	return out, err
}

// nothing answers that nothing came.
func nothing(req *registryv1.OpenBatchRequest) *registryv1.OpenBatchResponse {
	return &registryv1.OpenBatchResponse{HeadId: req.GetAfterId(), ScannedId: req.GetAfterId()}
}

// follow is OpenBatch that waits where other registries are beside this one.
func (s *Service) follow(ctx context.Context, a *directory.Agent, fence store.Fence, req *registryv1.OpenBatchRequest) (*registryv1.OpenBatchResponse, error) {
	out := nothing(req)
	_, _, holder, _ := rpc.FenceFrom(ctx)
	question, wait := fmt.Sprint(fence.Token, " ", req.GetAfterId()), min(req.GetWait().AsDuration(), core.MaxFollow)
	err := s.Shared.Follows.Read(ctx, rpc.Draining(ctx), a.ID, holder, question, wait, func() (bool, error) {
		set, err := s.Agents.Settings(ctx, a)
		if err != nil {
			core.Trouble(a, err)
			return false, err
		}
		r, err := s.open(ctx, a, fence, set, req)
		if err != nil || !r.GetMore() && r.GetScannedId() <= req.GetAfterId() && len(r.GetEvents()) == 0 {
			return false, err
		}
		out = r
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// open reads now.
func (s *Service) open(ctx context.Context, a *directory.Agent, fence store.Fence, set *agentdir.Agent, req *registryv1.OpenBatchRequest) (*registryv1.OpenBatchResponse, error) {
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
