package agents

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// retryInterval is how often a removal that waits for a holder tries again.
const retryInterval = 250 * time.Millisecond

// DeleteAgent removes an agent. It takes both leases first, as a worker would: then
// nobody works on the agent, and nobody can begin.
func (s *Service) DeleteAgent(ctx context.Context, req *registryv1.DeleteAgentRequest) (*registryv1.DeleteAgentResponse, error) {
	id := req.GetAgentId()
	a, err := s.Agents.Find(ctx, id) // one that is damaged may go too
	if err != nil {
		return nil, err
	}
	started := a.Started()
	if started && !req.GetForce() {
		return nil, fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+id+"' is started", "stop it first: agentctl stop "+id)
	}
	if started {
		if _, err := s.StopAgent(ctx, &registryv1.StopAgentRequest{AgentId: id}); err != nil {
			return nil, err
		}
	}
	held, err := s.holdAll(ctx, a, req.GetForce())
	defer func() {
		for _, r := range held { // the rows stay for their tokens
			_ = s.Leases.Release(context.WithoutCancel(ctx), r.Resource, r.Token)
		}
	}()
	if err != nil {
		return nil, s.Fault(id, thread.Inbox, err)
	}
	if err := s.Agents.Remove(ctx, id); err != nil {
		return nil, s.Fault(id, thread.Inbox, err)
	}
	return &registryv1.DeleteAgentResponse{Stopped: started}, nil
}

// holdAll takes the leases of an agent, and sees that no program outside works on it.
// With patience it waits for their holders as long as the caller does.
func (s *Service) holdAll(ctx context.Context, a *state.Agent, patience bool) (held []lease.Record, err error) {
	err = s.waiting(ctx, patience, func() error { return s.Agents.Idle(ctx, a.ID) })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, res := range []string{lease.AgentResource(a.ID), lease.DeliverResource(a.ID)} {
		req := lease.AcquireRequest{Resource: res, Holder: "removal/" + rand.Text(), RequestID: rand.Text(), Floor: a.Fence(res)}
		err := s.waiting(ctx, patience, func() error {
			r, err := s.Leases.Acquire(ctx, req)
			if err == nil {
				held = append(held, r)
			} else if patience {
				_, _ = s.Leases.RequestYield(ctx, res) // a request: a holder that misses it is waited for
			}
			return err
		})
		if err != nil {
			return held, err
		}
	}
	return held, nil
}

// waiting repeats what is held until it is not.
func (s *Service) waiting(ctx context.Context, patience bool, try func() error) error {
	for {
		err := try()
		if _, busy := errors.AsType[*lease.HeldError](err); !busy || !patience {
			return err
		}
		if pause.For(ctx, retryInterval) != nil {
			return err
		}
	}
}
