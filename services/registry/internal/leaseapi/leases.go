// Package leaseapi is the edge of LeaseService: a worker waits for agents with
// work, gets them under a lease, and renews and releases it.
//
// It promises that an agent is never leased while a foreign program holds its
// run.lock, that the repeat of a call whose answer was lost gets the same leases,
// that a lease ends at its time or with its holder's process, and that work left
// by it becomes due again. What a lease is: package lease.
package leaseapi

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/core"
	"github.com/theclaw/agents/services/registry/internal/directory"
	"github.com/theclaw/agents/services/registry/internal/runfile"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	defaultWait = 25 * time.Second
	maxWait     = time.Minute
	minTTL      = 100 * time.Millisecond
	maxTTL      = 10 * time.Minute

	// runLockRetry is when an agent is offered again whose run.lock was held.
	runLockRetry = 100 * time.Millisecond
	// diskRetry is when agents are offered again after the disk was found full.
	diskRetry = time.Second
)

// Service is the edge. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedLeaseServiceServer
	*core.Core
	runFiles runfile.Files
	polls    polls
	wishes   wishes
	reap     chan struct{} // a holder may have died
	again    atomic.Bool   // those who wait for work will look again
}

// New makes the edge. Run must run for leases to end.
func New(c *core.Core) *Service {
	s := &Service{Core: c, polls: polls{last: map[string]poll{}}, reap: make(chan struct{}, 1)}
	if c.Shared != nil {
		c.Shared.Lapsed, c.Shared.Abort = s.polls.lapsed, s.wishes.told
	}
	return s
}

// Close gives the agents' run.lock files back.
func (s *Service) Close() error { return s.runFiles.Close() }

func resource(kind registryv1.LeaseKind, agentID string) string {
	if kind == registryv1.LeaseKind_LEASE_KIND_DELIVER {
		return lease.DeliverResource(agentID)
	}
	return lease.AgentResource(agentID)
}

func ttlOf(d *durationpb.Duration) time.Duration {
	if d.AsDuration() <= 0 {
		return lease.DefaultTTL
	}
	return min(max(d.AsDuration(), minTTL), maxTTL)
}

// AcquireLease grants one resource.
func (s *Service) AcquireLease(ctx context.Context, req *registryv1.AcquireLeaseRequest) (*registryv1.AcquireLeaseResponse, error) {
	a, err := s.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	rec, err := s.acquire(ctx, a, req.GetKind(), lease.AcquireRequest{
		Holder: req.GetHolder(), Address: req.GetAddress(), RequestID: req.GetRequestId(), TTL: ttlOf(req.GetTtl()),
	})
	if err != nil {
		if f := fault.From(err); f.Reason == fault.LeaseHeld && f.Meta["holder"] != req.GetHolder() {
			s.LogAgent(a.ID, skipped(req.GetKind())+f.What) // somebody asked for a batch by hand, or a dispatcher did
		}
		return nil, err
	}
	return &registryv1.AcquireLeaseResponse{Lease: toLease(rec, true)}, nil
}

// skipped begins the line of agent.log about a batch that was not begun (S0-139).
func skipped(kind registryv1.LeaseKind) string {
	if kind == registryv1.LeaseKind_LEASE_KIND_DELIVER {
		return "outbound: skipped, lock held: "
	}
	return "run: skipped, lock held: "
}

func (s *Service) acquire(ctx context.Context, a *directory.Agent, kind registryv1.LeaseKind, req lease.AcquireRequest) (lease.Record, error) {
	req.Resource = resource(kind, a.ID)
	req.Floor = a.Fence(req.Resource)
	if kind == registryv1.LeaseKind_LEASE_KIND_RUN && s.Shared == nil {
		// Before the grant: a refusal must not use up a token.
		if err := s.takeRunLock(a.ID); err != nil {
			return lease.Record{}, s.Fault(a.ID, "", err)
		}
	}
	rec, err := s.Leases.Acquire(ctx, req)
	if err != nil {
		s.dropRunLock(ctx, a.ID)
		return rec, s.Fault(a.ID, "", err)
	}
	s.reapSoon()       // its end is on the loop's clock from now on
	s.Fates.Wake(a.ID) // who watches a run learns where it goes on
	return rec, nil
}

func (s *Service) takeRunLock(agentID string) error {
	dir, err := s.Home.Agent(agentID)
	if err != nil {
		return err
	}
	err = s.runFiles.Take(agentID, dir.RunLock())
	if _, held := errors.AsType[*lease.HeldError](err); held {
		s.offerAgain(runLockRetry)
	}
	return err
}

// dropRunLock gives run.lock back unless the agent is leased.
func (s *Service) dropRunLock(ctx context.Context, agentID string) {
	if s.Shared != nil {
		return // there is no directory to have one
	}
	if _, live, _ := s.Leases.Get(ctx, lease.AgentResource(agentID)); live {
		return
	}
	if err := s.runFiles.Release(agentID); err != nil {
		s.Log.Warn("run.lock not removed", "agent_id", agentID, "error", err)
	}
}

func toLease(r lease.Record, live bool) *registryv1.Lease {
	return &registryv1.Lease{
		Resource: r.Resource, Token: r.Token, Holder: r.Holder, Address: r.Address,
		Ttl: durationpb.New(r.TTL), ExpiresAt: timestamppb.New(r.Expires), Live: live,
	}
}

// RenewLease extends a current lease.
func (s *Service) RenewLease(ctx context.Context, req *registryv1.RenewLeaseRequest) (*registryv1.RenewLeaseResponse, error) {
	rec, err := s.Leases.Renew(ctx, req.GetResource(), req.GetHolder(), req.GetToken())
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	return &registryv1.RenewLeaseResponse{Ttl: durationpb.New(rec.TTL), YieldRequested: rec.YieldRequested, AbortRunIds: s.wishes.of(req.GetResource(), req.GetToken())}, nil
}

// ReleaseLease gives a lease back. Turns that had not ended are no crashes then,
// and work that is left becomes due again.
func (s *Service) ReleaseLease(ctx context.Context, req *registryv1.ReleaseLeaseRequest) (*registryv1.ReleaseLeaseResponse, error) {
	id := agentOf(req.GetResource())
	if s.Shared != nil {
		return s.releaseShared(ctx, id, req)
	}
	if req.GetResource() == lease.AgentResource(id) && s.Leases.Check(ctx, req.GetResource(), req.GetToken()) == nil {
		if a, err := s.Dir.Get(id); err == nil {
			for t, keys := range a.TakeClaims() {
				if err := s.Store.ResetCrashes(ctx, store.Ref{Agent: id, Thread: t}, keys); err != nil {
					s.Log.Warn("claims not given back", "agent_id", id, "thread_id", t, "error", err)
				}
			}
		}
	}
	if err := s.Leases.Release(ctx, req.GetResource(), req.GetToken()); err != nil {
		s.Log.Warn("release not saved", "agent_id", id, "error", err)
	}
	s.ended(ctx, id)
	return &registryv1.ReleaseLeaseResponse{}, nil
}

// releaseShared is ReleaseLease where the row of the lease knows the rest. One that
// was taken over meanwhile is as good as given back.
func (s *Service) releaseShared(ctx context.Context, id string, req *registryv1.ReleaseLeaseRequest) (*registryv1.ReleaseLeaseResponse, error) {
	if err := s.Leases.Release(ctx, req.GetResource(), req.GetToken()); err != nil && !errors.Is(err, lease.ErrLost) {
		return nil, s.Fault(id, "", err)
	}
	s.ended(ctx, id)
	return &registryv1.ReleaseLeaseResponse{}, nil
}

// ended makes the work of an agent due whose lease has ended.
func (s *Service) ended(ctx context.Context, id string) {
	s.dropRunLock(ctx, id)
	if a, err := s.Dir.Get(id); err == nil {
		s.MarkDue(a)
	}
}

func agentOf(resource string) string {
	_, id, _ := strings.Cut(resource, "/")
	return id
}

// ListLeases answers the live leases.
func (s *Service) ListLeases(ctx context.Context, req *registryv1.ListLeasesRequest) (*registryv1.ListLeasesResponse, error) {
	size := min(wire.Limit(req.GetPageSize(), 1000), 1000)
	page, err := s.Leases.List(ctx, req.GetPageToken(), size+1)
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	out := &registryv1.ListLeasesResponse{}
	for i, r := range page {
		if i == size {
			out.NextPageToken = page[size-1].Resource
			break
		}
		out.Leases = append(out.Leases, toLease(r, true))
	}
	return out, nil
}
