package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// acquireAccount grants the right to receive for a channel account, and waits while another gateway
// has it. That the home has the account is checked with each message: settings change while a gateway waits.
func (s *Service) acquireAccount(ctx context.Context, req *registryv1.AcquireLeaseRequest) (*registryv1.AcquireLeaseResponse, error) {
	r := lease.ChannelResource(req.GetAccount())
	if err := wire.CheckHolder(ctx, r, req.GetHolder()); err != nil {
		return nil, err
	}
	ask := lease.AcquireRequest{Resource: r, Holder: req.GetHolder(), Address: req.GetAddress(), RequestID: req.GetRequestId(), TTL: ttlOf(req.GetTtl())}
	var over <-chan time.Time
	if w := req.GetWait().AsDuration(); w > 0 {
		t := time.NewTimer(min(w, maxWait))
		defer t.Stop()
		over = t.C
	}
	for {
		ended, done := s.Wakes.AwaitLease(r) // before the question, so that no end is missed
		rec, err := s.Leases.Acquire(ctx, ask)
		if err == nil {
			done()
			return &registryv1.AcquireLeaseResponse{Lease: toLease(rec, true)}, nil
		}
		held, ok := errors.AsType[*lease.HeldError](err)
		if !ok {
			done()
			return nil, s.Fault("", "", err)
		}
		free := over != nil && s.awaitFree(ctx, r, ended, over)
		done()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !free {
			return nil, receivedFor(req.GetAccount(), held)
		}
	}
}

// awaitFree reports whether a lease ended before the wait was over. Where other registries end leases, whose
// notices may be lost, it reads the lease now and then: that writes nothing, which a refused Acquire may.
func (s *Service) awaitFree(ctx context.Context, resource string, ended <-chan struct{}, over <-chan time.Time) bool {
	for {
		select {
		case <-ended:
			return true
		case <-s.Wakes.Again():
			if _, live, err := s.Leases.Get(ctx, resource); err == nil && !live {
				return true
			}
		case <-over:
			return false
		case <-rpc.Draining(ctx):
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// receivedFor is the answer while another gateway has the lease of an account.
func receivedFor(account string, held *lease.HeldError) error {
	f := fault.New(codes.FailedPrecondition, fault.LeaseHeld, fmt.Sprintf("the account '%s' is received for by %s", account, held.Holder), "wait for it, or stop that gateway")
	f.RetryAfter, f.Meta = held.RetryAfter, map[string]string{"holder": held.Holder, "address": held.Address}
	return fault.Wrap(f, held)
}

// ended announces that a lease has ended: the work that it leaves is due again, or another gateway may receive.
func (s *Service) ended(ctx context.Context, resource string) {
	if lease.IsChannel(resource) {
		s.Wakes.LeaseEnded(resource)
		return
	}
	s.Due.Ended(ctx, lease.AgentOf(resource))
}
