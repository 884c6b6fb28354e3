package registry

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/directory"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
)

const (
	defaultWait = 25 * time.Second
	maxWait     = time.Minute
	minTTL      = 100 * time.Millisecond
	maxTTL      = 10 * time.Minute

	// runLockRetry is when an agent is offered again whose run.lock was held.
	runLockRetry = 100 * time.Millisecond
)

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
	a, err := s.agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	rec, err := s.acquire(ctx, a, req.GetKind(), lease.AcquireRequest{
		Holder: req.GetHolder(), Address: req.GetAddress(), RequestID: req.GetRequestId(), TTL: ttlOf(req.GetTtl()),
	})
	if err != nil {
		return nil, err
	}
	return &registryv1.AcquireLeaseResponse{Lease: toLease(rec, true)}, nil
}

func (s *Service) acquire(ctx context.Context, a *directory.Agent, kind registryv1.LeaseKind, req lease.AcquireRequest) (lease.Record, error) {
	req.Resource = resource(kind, a.ID)
	req.Floor = a.Fence(req.Resource)
	if kind == registryv1.LeaseKind_LEASE_KIND_RUN {
		// Before the grant: a refusal must not use up a token.
		if err := s.takeRunLock(a.ID); err != nil {
			return lease.Record{}, s.edge(a.ID, "", err)
		}
	}
	rec, err := s.leases.Acquire(ctx, req)
	if err != nil {
		s.dropRunLock(a.ID)
		return rec, s.edge(a.ID, "", err)
	}
	s.reapSoon() // its end is on the loop's clock from now on
	return rec, nil
}

func (s *Service) takeRunLock(agentID string) error {
	dir, err := s.home.Agent(agentID)
	if err != nil {
		return err
	}
	err = s.runFiles.Take(agentID, dir.RunLock())
	if _, held := errors.AsType[*lease.HeldError](err); held {
		// Nobody tells when a foreign program, or a child that a killed process was
		// just starting, lets go of it.
		time.AfterFunc(runLockRetry, s.run.Wake)
	}
	return err
}

// dropRunLock gives run.lock back unless the agent is leased.
func (s *Service) dropRunLock(agentID string) {
	if _, live := s.leases.Get(lease.AgentResource(agentID)); live {
		return
	}
	if err := s.runFiles.Release(agentID); err != nil {
		s.log.Warn("run.lock not removed", "agent_id", agentID, "error", err)
	}
}

func (s *Service) reapSoon() {
	select {
	case s.reap <- struct{}{}:
	default:
	}
}

func toLease(r lease.Record, live bool) *registryv1.Lease {
	return &registryv1.Lease{
		Resource: r.Resource, Token: r.Token, Holder: r.Holder, Address: r.Address,
		Ttl: durationpb.New(r.TTL), ExpiresAt: timestamppb.New(r.Expires), Live: live,
	}
}

// AcquireDueLease waits for agents with work and leases them to the caller.
func (s *Service) AcquireDueLease(ctx context.Context, req *registryv1.AcquireDueLeaseRequest) (*registryv1.AcquireDueLeaseResponse, error) {
	key := req.GetHolder() + "/" + req.GetKind().String()
	if again := s.polls.repeat(key, req.GetRequestId()); again != nil {
		return again, nil
	}
	wait := req.GetWait().AsDuration()
	if wait <= 0 {
		wait = defaultWait
	}
	timeout := time.NewTimer(min(wait, maxWait))
	defer timeout.Stop()
	board := s.run
	if req.GetKind() == registryv1.LeaseKind_LEASE_KIND_DELIVER {
		board = s.deliver
	}
	lapses := s.polls.lapsesOf(req.GetHolder())
	for {
		if s.polls.lapsesOf(req.GetHolder()) != lapses {
			// A stopped process cannot take back the poll it left here. Given what
			// it has just let run out, it would hold that for one ttl more; one that
			// is only late asks again at once.
			return &registryv1.AcquireDueLeaseResponse{}, nil
		}
		answer, wake := s.takeDue(ctx, board, req)
		if len(answer.GetDue()) > 0 {
			s.polls.keep(key, req.GetRequestId(), answer)
			return answer, nil
		}
		select {
		case <-wake:
		case <-timeout.C:
			return answer, nil
		case <-rpc.Draining(ctx):
			return answer, nil
		case <-ctx.Done():
			// The asker may have died with leases in its hands.
			s.reapSoon()
			return nil, ctx.Err()
		}
	}
}

// takeDue takes what the caller may have: agents whose lease it holds, and free
// ones up to its bound. Work of agents held by others stays on the board.
func (s *Service) takeDue(ctx context.Context, board *dispatch.Board, req *registryv1.AcquireDueLeaseRequest) (*registryv1.AcquireDueLeaseResponse, <-chan struct{}) {
	out := &registryv1.AcquireDueLeaseResponse{}
	fresh := int32(0)
	granted := map[string]*registryv1.DueWork{}
	items, wake := board.Take(func(id string) (accept, stop bool) {
		a, err := s.dir.Get(id)
		if err != nil {
			return true, false // gone: off the board
		}
		if req.GetKind() == registryv1.LeaseKind_LEASE_KIND_RUN && !a.HasWork() {
			return true, false // stopped, or settled meanwhile
		}
		due := &registryv1.DueWork{AgentId: id, HeadId: a.Known().Head}
		if rec, live := s.leases.Get(resource(req.GetKind(), id)); live {
			if rec.Holder != req.GetHolder() {
				return false, false
			}
			due.Lease = toLease(rec, true)
			granted[id] = due
			return true, len(granted) >= 256
		}
		if fresh >= req.GetMaxNew() {
			return false, false
		}
		rec, err := s.acquire(ctx, a, req.GetKind(), lease.AcquireRequest{
			Holder: req.GetHolder(), Address: req.GetAddress(), RequestID: req.GetRequestId() + "/" + id, TTL: ttlOf(req.GetTtl()),
		})
		if fault.Is(err, fault.LeaseHeld) {
			return false, false // another was faster, or run.lock is held
		}
		if err != nil {
			s.log.Warn("due agent not leased", "agent_id", id, "error", err)
			return false, false // the sweep marks it again
		}
		fresh++
		due.Lease, due.Fresh = toLease(rec, true), true
		granted[id] = due
		return true, len(granted) >= 256
	})
	for _, it := range items {
		if due := granted[it.Agent]; due != nil {
			due.ThreadIds = it.Threads
			s.metrics.DispatchLatency.Observe(time.Since(it.Since).Seconds())
			out.Due = append(out.Due, due)
		}
	}
	return out, wake
}

// RenewLease extends a current lease.
func (s *Service) RenewLease(_ context.Context, req *registryv1.RenewLeaseRequest) (*registryv1.RenewLeaseResponse, error) {
	rec, err := s.leases.Renew(req.GetResource(), req.GetHolder(), req.GetToken())
	if err != nil {
		return nil, s.edge("", "", err)
	}
	return &registryv1.RenewLeaseResponse{Ttl: durationpb.New(rec.TTL), YieldRequested: rec.YieldRequested}, nil
}

// ReleaseLease gives a lease back. Turns that had not ended are no crashes then,
// and work that is left becomes due again.
func (s *Service) ReleaseLease(ctx context.Context, req *registryv1.ReleaseLeaseRequest) (*registryv1.ReleaseLeaseResponse, error) {
	id := agentOf(req.GetResource())
	if req.GetResource() == lease.AgentResource(id) && s.leases.Check(req.GetResource(), req.GetToken()) == nil {
		if a, err := s.dir.Get(id); err == nil {
			for t, keys := range a.TakeClaims() {
				if err := s.store.ResetCrashes(ctx, store.Ref{Agent: id, Thread: t}, keys); err != nil {
					s.log.Warn("claims not given back", "agent_id", id, "thread_id", t, "error", err)
				}
			}
		}
	}
	if err := s.leases.Release(ctx, req.GetResource(), req.GetToken()); err != nil {
		s.log.Warn("release not saved", "agent_id", id, "error", err)
	}
	s.ended(id)
	return &registryv1.ReleaseLeaseResponse{}, nil
}

// ended makes the work of an agent due whose lease has ended.
func (s *Service) ended(id string) {
	s.dropRunLock(id)
	if a, err := s.dir.Get(id); err == nil {
		s.markDue(a)
	}
}

func agentOf(resource string) string {
	_, id, _ := strings.Cut(resource, "/")
	return id
}

// ListLeases answers the live leases.
func (s *Service) ListLeases(_ context.Context, req *registryv1.ListLeasesRequest) (*registryv1.ListLeasesResponse, error) {
	byName := map[string]lease.Record{}
	var names []string
	for _, r := range s.leases.List() {
		byName[r.Resource] = r
		names = append(names, r.Resource)
	}
	part, next := page(names, req.GetPageToken(), int(req.GetPageSize()), 1000)
	out := &registryv1.ListLeasesResponse{NextPageToken: next}
	for _, n := range part {
		out.Leases = append(out.Leases, toLease(byName[n], true))
	}
	return out, nil
}

// reapLoop frees the leases of dead holders and ends expired ones at their time.
func (s *Service) reapLoop(ctx context.Context) {
	for {
		wait := time.Minute
		if at, ok := s.leases.NextExpiry(); ok {
			wait = max(time.Until(at), 10*time.Millisecond)
		}
		// Deaths announce themselves by the end of a long poll; once a second is
		// for those that do not.
		if len(s.leases.List()) > 0 {
			wait = min(wait, time.Second)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-s.reap:
		case <-t.C:
		}
		t.Stop()
		for _, r := range s.leases.Reap(ctx) {
			s.log.Info("lease ended", "agent_id", agentOf(r.Resource), "holder", r.Holder, "fencing_token", r.Token)
			s.polls.lapsed(r.Holder)
			s.ended(agentOf(r.Resource))
		}
		s.metrics.Leases.WithLabelValues("held").Set(float64(len(s.leases.List())))
	}
}
