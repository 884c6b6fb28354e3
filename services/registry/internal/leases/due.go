package leases

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/lease"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// AcquireDueLease waits for agents with work and leases them to the caller.
func (s *Service) AcquireDueLease(ctx context.Context, req *registryv1.AcquireDueLeaseRequest) (*registryv1.AcquireDueLeaseResponse, error) {
	if err := wire.CheckHolder(ctx, resource(req.GetKind(), "*"), req.GetHolder()); err != nil {
		return nil, err
	}
	wait := req.GetWait().AsDuration()
	if wait <= 0 {
		wait = defaultWait
	}
	answer, err := s.Due.Next(ctx, dispatch.Request{
		Deliver: req.GetKind() == registryv1.LeaseKind_LEASE_KIND_DELIVER, Holder: req.GetHolder(), Address: req.GetAddress(), RequestID: req.GetRequestId(),
		TTL: ttlOf(req.GetTtl()), Wait: min(wait, maxWait), MaxNew: int(req.GetMaxNew()), News: req.GetNews(),
	})
	if err != nil {
		return nil, err
	}
	out := &registryv1.AcquireDueLeaseResponse{News: answer.News, Waiting: int32(answer.Waiting)}
	for _, d := range answer.Due {
		out.Due = append(out.Due, &registryv1.DueWork{AgentId: d.Agent, HeadId: d.Head, ThreadIds: d.Threads, Lease: toLease(d.Lease, true), Fresh: d.Fresh})
	}
	return out, nil
}

// Run ends the leases of dead holders and expired leases until ctx ends.
func (s *Service) Run(ctx context.Context) {
	for ctx.Err() == nil {
		ended, next, err := s.Leases.Reap(ctx)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("leases not checked", "error", err)
		}
		for _, r := range ended {
			key, name := "agent_id", lease.AgentOf(r.Resource)
			if lease.IsChannel(r.Resource) {
				key, name = "account", lease.AccountOf(r.Resource)
			}
			s.Log.Info("lease ended", key, name, "holder", r.Holder, "fencing_token", r.Token)
			s.ended(ctx, r.Resource)
		}
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-s.Leases.Changed():
		case <-t.C:
		}
		t.Stop()
	}
}
