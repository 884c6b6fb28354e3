package agents

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
)

const (
	// retryInterval is how often a removal that waits for a holder tries again.
	retryInterval = 250 * time.Millisecond
	// removalTTL is how long the leases of a removal last when its registry is killed.
	removalTTL = 30 * time.Second
	// maxNotice is the most that a removal waits for a holder to notice something: it reads
	// the answer to each renewal, of which there are three in a ttl.
	maxNotice = 5 * time.Second
	// notice is added, for what the holder does then.
	notice = time.Second
	// removalHolder begins the name of a removal as a holder.
	removalHolder = "removal/"
)

// noticed is how long after a change a holder has noticed it.
func noticed(r lease.Record) time.Duration { return min(r.TTL/3, maxNotice) + notice }

// DeleteAgent removes an agent. It keeps both leases from being granted to a worker and
// acquires them: then no work on the agent is under way, and none can begin.
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
	defer s.Agents.Block(id)()
	held, err := s.holdAll(ctx, a, req.GetForce())
	defer func() {
		for _, r := range held { // the rows stay for their tokens
			_ = s.Leases.Release(context.WithoutCancel(ctx), r.Resource, r.Token)
		}
		if err != nil {
			s.Agents.MarkDue(a) // its replies are sent after all
		}
	}()
	if err == nil {
		err = s.Agents.Remove(ctx, id)
	}
	if err != nil {
		return nil, s.Fault(id, thread.Inbox, err)
	}
	return &registryv1.DeleteAgentResponse{Stopped: started}, nil
}

// holdAll takes the leases of an agent, and sees that no program outside works on it. With
// force a program outside is waited for as long as the caller does, and the lease of a
// worker that does not give it back in time is ended.
func (s *Service) holdAll(ctx context.Context, a *state.Agent, force bool) (held []lease.Record, err error) {
	for {
		err := s.Agents.Idle(ctx, a.ID)
		if _, busy := errors.AsType[*lease.HeldError](err); busy && force && pause.For(ctx, retryInterval) == nil {
			continue
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		break
	}
	run, deliver := lease.AgentResource(a.ID), lease.DeliverResource(a.ID)
	if force {
		_, _ = s.Leases.RequestYield(ctx, run)
	}
	_, _ = s.Leases.RequestYield(ctx, deliver)
	for _, res := range []string{run, deliver} {
		// A runner that holds a stopped agent works on it or has just done so; a deliverer
		// may only be waiting for a channel.
		r, err := s.hold(ctx, a, res, force || res == deliver, force)
		if err != nil {
			return held, err
		}
		held = append(held, r)
	}
	return held, nil
}

// hold takes one lease. With patience the holder is asked to give it back and has the time
// of a renewal for that; after that the lease is ended with force, and its tools are given the
// time to be killed.
func (s *Service) hold(ctx context.Context, a *state.Agent, res string, patience, force bool) (lease.Record, error) {
	req := lease.AcquireRequest{Resource: res, Holder: removalHolder + rand.Text(), RequestID: rand.Text(), TTL: removalTTL, Floor: a.Fence(res)}
	var until time.Time
	for {
		r, err := s.Leases.Acquire(ctx, req)
		if _, busy := errors.AsType[*lease.HeldError](err); !busy || !patience {
			return r, err
		}
		now, live, bad := s.Leases.Get(ctx, res)
		switch {
		case bad != nil:
			return r, bad
		case !live: // given back meanwhile
			continue
		case until.IsZero():
			until = time.Now().Add(noticed(now))
		case time.Now().After(until) && !force:
			return r, err
		case time.Now().After(until) && !strings.HasPrefix(now.Holder, removalHolder):
			if err := s.Leases.Release(ctx, res, now.Token); err != nil && !errors.Is(err, lease.ErrLost) {
				return r, err
			}
			if r, err = s.Leases.Acquire(ctx, req); err == nil && res == lease.AgentResource(a.ID) {
				err = pause.For(ctx, noticed(now)) // its tools work in the directory until then
			}
			if _, busy := errors.AsType[*lease.HeldError](err); !busy {
				return r, err
			}
		}
		_, _ = s.Leases.RequestYield(ctx, res) // each term is asked
		if pause.For(ctx, retryInterval) != nil {
			return r, err
		}
	}
}
