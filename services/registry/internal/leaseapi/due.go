package leaseapi

import (
	"context"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
)

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
	board := s.DueRuns
	if req.GetKind() == registryv1.LeaseKind_LEASE_KIND_DELIVER {
		board = s.DueDeliveries
	}
	lapses := s.polls.lapsesOf(req.GetHolder())
	if s.Shared != nil {
		return s.findDue(ctx, req, timeout.C, lapses)
	}
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
	full := sync.OnceValue(func() bool { return s.full(req.GetKind()) })
	granted := map[string]*registryv1.DueWork{}
	items, wake := board.Take(func(id string) (accept, stop bool) {
		a, err := s.Dir.Get(id)
		if err != nil {
			return true, false // gone: off the board
		}
		if req.GetKind() == registryv1.LeaseKind_LEASE_KIND_RUN && !a.HasWork() {
			return true, false // stopped, or settled meanwhile
		}
		due := &registryv1.DueWork{AgentId: id, HeadId: a.Known().Head}
		if rec, live, _ := s.Leases.Get(ctx, resource(req.GetKind(), id)); live {
			if rec.Holder != req.GetHolder() {
				return false, false
			}
			due.Lease = toLease(rec, true)
			granted[id] = due
			return true, len(granted) >= 256
		}
		if full() {
			return false, false
		}
		if fresh >= req.GetMaxNew() {
			out.Waiting++
			return false, false
		}
		rec, err := s.acquire(ctx, a, req.GetKind(), lease.AcquireRequest{
			Holder: req.GetHolder(), Address: req.GetAddress(), RequestID: req.GetRequestId() + "/" + id, TTL: ttlOf(req.GetTtl()),
		})
		if fault.Is(err, fault.LeaseHeld) {
			return false, false // another was faster, or run.lock is held
		}
		if err != nil {
			s.Log.Warn("due agent not leased", "agent_id", id, "error", err)
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
			s.Metrics.DispatchLatency.Observe(time.Since(it.Since).Seconds())
			out.Due = append(out.Due, due)
		}
	}
	return out, wake
}

// full tells that no agent is leased to a runner now: without space nothing new is
// begun, while what was answered is still delivered.
func (s *Service) full(kind registryv1.LeaseKind) bool {
	if kind != registryv1.LeaseKind_LEASE_KIND_RUN || s.CheckDisk() == nil {
		return false
	}
	s.offerAgain(diskRetry)
	return true
}

// offerAgain makes those who wait for work look again after a while: nobody tells
// when there is space, or when a foreign program, or a child that a killed process
// was just starting, lets go of a run.lock. One such look is ahead at a time.
func (s *Service) offerAgain(after time.Duration) {
	if s.again.CompareAndSwap(false, true) {
		time.AfterFunc(after, func() {
			s.again.Store(false)
			s.DueRuns.Wake()
		})
	}
}
