// Package usage owns what the turns of agents have used of models, as their journals say:
// sums over threads, days and runs, and what a finished turn takes of a quota.
//
// It promises that a sum is what was recorded, whoever asks at whichever registry, and that
// a quota stops no work. It prices nothing and decides nothing; see packages price and admission.
package usage

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Agents answers what agents and threads there are.
type Agents interface {
	Get(id string) (*state.Agent, error)
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
}

// Store keeps the journals.
type Store interface {
	Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error)
	SumUsage(ctx context.Context, r store.Ref, q store.SumUsage) ([]store.UsageSum, error)
}

// Journals are those of the agents of a registry.
type Journals struct {
	wire.Faults
	Store  Store
	Agents Agents
	Quota  *admission.Quota
}

// Sum adds up the answers in an agent's threads, a page of threads a call.
func (j *Journals) Sum(ctx context.Context, req *registryv1.SumUsageRequest) (*registryv1.SumUsageResponse, error) {
	if _, err := j.Agents.Get(req.GetAgentId()); err != nil {
		return nil, err
	}
	size := wire.Limit(req.GetPageSize(), 100)
	threads, err := j.Agents.Threads(ctx, req.GetAgentId(), req.GetPageToken(), size)
	if err != nil {
		return nil, j.Fault(req.GetAgentId(), "", err)
	}
	q := store.SumUsage{ByDay: req.GetByDay(), ByRun: req.GetByRun()}
	if at := req.GetSince(); at != nil {
		q.Since = at.AsTime()
	}
	out := &registryv1.SumUsageResponse{}
	for _, id := range threads {
		sums, err := j.Store.SumUsage(ctx, store.Ref{Agent: req.GetAgentId(), Thread: id}, q)
		if errors.Is(err, store.ErrNotFound) { // removed since it was listed
			continue
		}
		if err != nil {
			return nil, j.Fault(req.GetAgentId(), id, err)
		}
		for _, sum := range sums {
			out.Sums = append(out.Sums, &registryv1.UsageSum{
				ThreadId: id, Model: sum.Model, Day: sum.Day, RunId: sum.Turn, Answers: sum.Answers, Usage: wire.ToUsage(sum.Usage),
			})
		}
	}
	if len(threads) == size {
		out.NextPageToken = threads[size-1]
	}
	return out, nil
}

// Fill tells what each of the turns has cost, with one look into each of
// their threads.
func (j *Journals) Fill(ctx context.Context, agent string, turns []store.Turn) error {
	keys := map[string][]string{}
	for _, t := range turns {
		if t.Thread != "" {
			keys[t.Thread] = append(keys[t.Thread], t.Key)
		}
	}
	used := map[string]store.Usage{}
	for id, list := range keys {
		sums, err := j.Store.SumUsage(ctx, store.Ref{Agent: agent, Thread: id}, store.SumUsage{ByRun: true, Turns: list})
		if errors.Is(err, store.ErrNotFound) { // its events have their fate, and it was removed since
			continue
		}
		if err != nil {
			return j.Fault(agent, id, err)
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

// Spend counts what a finished turn has used, for agents that have a quota. A
// turn that cannot be read now is not counted: a quota stops no work.
func (j *Journals) Spend(ctx context.Context, set *agentdir.Agent, from string, req *registryv1.FinishTurnRequest) {
	if !set.Config.Quota.Daily() {
		return
	}
	t, err := j.Store.Turn(ctx, req.GetAgentId(), store.TurnQuery{InboxID: req.GetInboxId(), Key: req.GetKey(), Route: wire.ThreadOf})
	if err == nil {
		j.Quota.Spend(ctx, &set.Config, req.GetAgentId(), from, t.Usage.Input, t.Usage.Output)
	}
}
