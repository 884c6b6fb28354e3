package leases

import (
	"context"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// RequestAbort notes that a run must end. The waiting caller repeats a request that is lost
// on the way or with a registry.
func (s *Service) RequestAbort(ctx context.Context, req *registryv1.RequestAbortRequest) (*registryv1.RequestAbortResponse, error) {
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	now, err := s.whoRuns(ctx, a, req.GetRunId())
	if err != nil {
		return nil, err
	}
	l := now.GetLease()
	if now.GetEnded() || l == nil {
		return &registryv1.RequestAbortResponse{Ended: now.GetEnded()}, nil
	}
	s.Aborts.Add(l.GetResource(), l.GetToken(), req.GetRunId())
	return &registryv1.RequestAbortResponse{Lease: l}, nil
}
