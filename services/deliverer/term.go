package deliverer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/rpc"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer/internal/drain"
)

// term is one agent being drained under one lease.
type term struct {
	agentID string
	token   uint64
	drain   *drain.Agent
	over    chan struct{} // closed when the lease is given back or lost
}

// start is a grant on its way to Run.
type start struct {
	grant *registryv1.Lease
	sent  time.Time
	reply chan *term // nil on it: the deliverer is stopping
}

// start begins a term, or gives the lease back and answers nil when the
// deliverer is stopping. base outlives the drain of the service.
func (s *Service) start(base context.Context, grant *registryv1.Lease, sent time.Time) *term {
	agentID := strings.TrimPrefix(grant.GetResource(), lease.DeliverResource(""))
	fenced := rpc.WithFence(base, grant.GetResource(), grant.GetToken(), s.deps.Holder)
	sent, err := s.trusted(fenced, grant, sent)
	if err != nil {
		s.warn("trust lease", agentID, err)
		s.release(fenced, grant)
		return nil
	}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		s.release(fenced, grant)
		return nil
	}
	defer s.mu.Unlock()
	keeper := lease.Keep(fenced, renewer{s.leases, s.deps.Holder},
		lease.Grant{Resource: grant.GetResource(), Token: grant.GetToken(), TTL: grant.GetTtl().AsDuration(), Sent: sent},
		lease.Options{OnError: func(err error) { s.warn("renew lease", agentID, err) }})
	t := &term{agentID: agentID, token: grant.GetToken(), drain: s.pool.Agent(agentID, keeper), over: make(chan struct{})}
	s.terms[agentID], s.all[t] = t, struct{}{}
	t.drain.Wake(s.owed[agentID]...)
	delete(s.owed, agentID)
	s.wg.Go(func() {
		defer s.forget(t)
		err := t.drain.Run()
		keeper.Stop()
		if errors.Is(err, lease.ErrLost) {
			s.warn("deliver", agentID, err)
			return
		}
		s.release(fenced, grant)
	})
	return t
}

// trusted answers the instant from which a grant's trust is counted. A poll
// that waited long says little about when the grant was made: a renewal costs
// the registry nothing and settles it.
func (s *Service) trusted(ctx context.Context, grant *registryv1.Lease, sent time.Time) (time.Time, error) {
	ttl := grant.GetTtl().AsDuration()
	if ttl <= 0 {
		ttl = lease.DefaultTTL
	}
	if time.Since(sent) < ttl/3 {
		return sent, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ttl/3)
	defer cancel()
	sent = time.Now()
	if _, err := (renewer{s.leases, s.deps.Holder}).Renew(ctx, grant.GetResource(), grant.GetToken()); err != nil {
		return time.Time{}, err
	}
	return sent, nil
}

// release gives a lease back. When that fails it runs out by itself.
func (s *Service) release(fenced context.Context, grant *registryv1.Lease) {
	ctx, cancel := context.WithTimeout(fenced, callLimit/2)
	defer cancel()
	_, err := s.leases.ReleaseLease(ctx, &registryv1.ReleaseLeaseRequest{Resource: grant.GetResource(), Token: grant.GetToken()})
	if err != nil && fault.From(err).Reason != fault.LeaseLost {
		s.warn("release lease", strings.TrimPrefix(grant.GetResource(), lease.DeliverResource("")), err)
	}
}

func (s *Service) forget(t *term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, t)
	if s.terms[t.agentID] == t {
		delete(s.terms, t.agentID)
	}
	close(t.over)
}

// find answers the newest term of an agent, or nil.
func (s *Service) find(agentID string) *term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms[agentID]
}

func (s *Service) warn(what, agentID string, err error) {
	s.deps.Logger.Warn(what+" failed", obs.KeyAgentID, agentID, "error", err)
}

// renewer carries renewals to the registry.
type renewer struct {
	client registryv1.LeaseServiceClient
	holder string
}

func (r renewer) Renew(ctx context.Context, resource string, token uint64) (lease.RenewReply, error) {
	resp, err := r.client.RenewLease(ctx, &registryv1.RenewLeaseRequest{Resource: resource, Token: token, Holder: r.holder})
	if err != nil {
		if fault.From(err).Reason == fault.LeaseLost {
			return lease.RenewReply{}, fmt.Errorf("renew lease: %w: %w", lease.ErrLost, err)
		}
		return lease.RenewReply{}, fmt.Errorf("renew lease: %w", err)
	}
	return lease.RenewReply{TTL: resp.GetTtl().AsDuration(), YieldRequested: resp.GetYieldRequested()}, nil
}
