package leases

import (
	"context"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// FindRunner returns the holder of an agent's run lease, and waits until that has changed.
// Each grant and each fate here wakes the waiters; where other registries grant leases too,
// they recheck now and then.
func (s *Service) FindRunner(ctx context.Context, req *registryv1.FindRunnerRequest) (*registryv1.FindRunnerResponse, error) {
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	var over <-chan time.Time
	if w := req.GetWait().AsDuration(); w > 0 {
		t := time.NewTimer(min(w, maxWait))
		defer t.Stop()
		over = t.C
	}
	for {
		woken, done := s.Wakes.AwaitFate(a.ID) // before the read, so that nothing is missed
		out, err := s.whoRuns(ctx, a, req.GetRunId())
		if err != nil || over == nil || out.GetEnded() || out.GetLease().GetToken() > req.GetAfterToken() {
			done()
			return out, err
		}
		select {
		case <-woken:
		case <-s.Wakes.Again():
		case <-over:
			over = nil
		case <-rpc.Draining(ctx):
			over = nil
		case <-ctx.Done():
			done()
			return nil, ctx.Err()
		}
		done()
	}
}

// whoRuns returns the present state.
func (s *Service) whoRuns(ctx context.Context, a *state.Agent, run string) (*registryv1.FindRunnerResponse, error) {
	out := &registryv1.FindRunnerResponse{}
	if run != "" {
		id, ok := thread.KeyID(run)
		if !ok {
			return nil, wire.Bad(fmt.Sprintf("%.80q is not the id of a run", run), "give the run id that was answered at the start")
		}
		t, err := s.Turns.Turn(ctx, a.ID, store.TurnQuery{InboxID: id, Key: run, Route: wire.ThreadOf})
		if err != nil {
			return nil, s.Fault(a.ID, thread.Inbox, err)
		}
		out.Ended = t.State == store.TurnDone
	}
	rec, live, err := s.Leases.Get(ctx, lease.AgentResource(a.ID))
	if err != nil {
		return nil, s.Fault(a.ID, "", err)
	}
	if live {
		out.Lease = toLease(rec, true)
	}
	return out, nil
}
