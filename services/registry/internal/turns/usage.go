package turns

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// SumUsage adds up the model usage in the journals of an agent's threads, a page of
// threads per call. Every registry returns the same sum.
func (s *Service) SumUsage(ctx context.Context, req *registryv1.SumUsageRequest) (*registryv1.SumUsageResponse, error) {
	if _, err := s.Agents.Get(req.GetAgentId()); err != nil {
		return nil, err
	}
	size := wire.Limit(req.GetPageSize(), 100)
	threads, err := s.Agents.Threads(ctx, req.GetAgentId(), req.GetPageToken(), size)
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), "", err)
	}
	q := store.SumUsage{ByDay: req.GetByDay(), ByRun: req.GetByRun()}
	if at := req.GetSince(); at != nil {
		q.Since = at.AsTime()
	}
	out := &registryv1.SumUsageResponse{}
	for _, id := range threads {
		sums, err := s.Store.SumUsage(ctx, store.Ref{Agent: req.GetAgentId(), Thread: id}, q)
		if errors.Is(err, store.ErrNotFound) { // removed since it was listed
			continue
		}
		if err != nil {
			return nil, s.Fault(req.GetAgentId(), id, err)
		}
		for _, sum := range sums {
			out.Sums = append(out.Sums, wire.UsageSum(id, sum))
		}
	}
	if len(threads) == size {
		out.NextPageToken = threads[size-1]
	}
	return out, nil
}

// fillUsage sets the usage of each of the turns, with one read of each of their threads.
func (s *Service) fillUsage(ctx context.Context, agent string, turns []store.Turn) error {
	keys := map[string][]string{}
	for _, t := range turns {
		if t.Thread != "" {
			keys[t.Thread] = append(keys[t.Thread], t.Key)
		}
	}
	used := map[string]store.Usage{}
	for id, list := range keys {
		sums, err := s.Store.SumUsage(ctx, store.Ref{Agent: agent, Thread: id}, store.SumUsage{ByRun: true, Turns: list})
		if errors.Is(err, store.ErrNotFound) { // its events have their fate, and it was removed since
			continue
		}
		if err != nil {
			return s.Fault(agent, id, err)
		}
		for _, sum := range sums { // one for each model
			u := used[sum.Turn]
			u.Add(sum.Usage)
			used[sum.Turn] = u
		}
	}
	for i := range turns {
		turns[i].Usage = used[turns[i].Key]
	}
	return nil
}

// ended is a call that names a turn which it has ended.
type ended interface {
	GetInboxId() int64
	GetKey() string
}

// spend counts the usage of a finished turn against the quota of its agent, if it has one: as its steps were
// recorded here, or as it is stored where it was claimed before a restart. A turn that cannot be read now is not counted: a quota
// stops no work.
func (s *Service) spend(ctx context.Context, a *state.Agent, set *agentdir.Agent, from, threadID string, turn ended) {
	if !set.Config.Quota.Daily() {
		return
	}
	used, _, ok := a.Used(threadID, turn.GetKey())
	if !ok {
		t, err := s.Store.Turn(ctx, a.ID, store.TurnQuery{InboxID: turn.GetInboxId(), Key: turn.GetKey(), Route: wire.ThreadOf})
		if err != nil {
			return
		}
		used = t.Usage
	}
	s.Quota.Spend(ctx, &set.Config, a.ID, from, used.Input, used.Output)
}
