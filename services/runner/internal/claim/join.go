package claim

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
)

var errEnding = fault.New(codes.Unavailable, fault.ServiceUnavailable, "the runner is ending", "try again")

// Join works until every inbox event of the agent up to head has its fate, in
// the claim that is there or in one of its own, and answers how many got theirs.
// may is asked before each claim; its error, such as that the agent was stopped
// meanwhile, ends the wait.
// Errors: FAILED_PRECONDITION, LEASE_HELD when another process has the lease and
// AGENT_FAILED in a quarantine; UNAVAILABLE in a drain.
func (s *Set) Join(ctx context.Context, agentID string, head int64, may func(context.Context) error) (processed int64, err error) {
	for {
		if err := may(ctx); err != nil {
			return processed, err
		}
		b, err := s.join(ctx, agentID)
		if err != nil {
			return processed, err
		}
		n, err := b.Join(ctx, head)
		processed += n
		if !errors.Is(err, batch.ErrEnded) {
			return processed, err
		}
	}
}

// Withdraw ends an event that no turn has begun, in the claim that is there or in
// one of its own. False when its turn has begun here, or it has its fate. Errors
// as of Join.
func (s *Set) Withdraw(ctx context.Context, agentID, key string) (bool, error) {
	for {
		b, err := s.join(ctx, agentID)
		if err != nil {
			return false, err
		}
		if ok, err := b.Withdraw(ctx, key); !errors.Is(err, batch.ErrEnded) {
			return ok, err
		}
	}
}

// join answers the batch of an agent, and takes the lease for one if need be.
func (s *Set) join(ctx context.Context, id string) (*batch.Batch, error) {
	request := ulid.Make().String()
	for {
		s.mu.Lock()
		c, changed := s.claims[id], s.changed
		switch {
		case s.draining:
			s.mu.Unlock()
			return nil, errEnding
		case s.panics.left(id) > 0:
			s.mu.Unlock()
			f := fault.New(codes.FailedPrecondition, fault.AgentFailed, "agent '"+id+"' is set aside after repeated panics", "wait, and look into the runner's log")
			f.RetryAfter = s.panics.left(id)
			return nil, f
		case c != nil && !c.leaving():
			s.mu.Unlock()
			return c.current(), nil
		case c != nil: // on its way out: wait for the release
			s.mu.Unlock()
			if err := await(ctx, changed); err != nil {
				return nil, err
			}
			continue
		}
		s.asking[id]++
		s.mu.Unlock()
		held, err := s.acquire(ctx, id, request)
		s.mu.Lock()
		if s.asking[id]--; s.asking[id] == 0 {
			delete(s.asking, id)
		}
		changed = s.changed
		s.mu.Unlock()
		if err != nil && !held {
			return nil, err
		}
		if held { // by this process: its claim is just being made, or given back
			poll, cancel := context.WithTimeout(ctx, firstWait)
			_ = await(poll, changed)
			cancel()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		request = ulid.Make().String()
	}
}

// acquire takes the lease of an agent and begins a claim. held tells that this
// very process has it already.
func (s *Set) acquire(ctx context.Context, id, request string) (held bool, err error) {
	sent := time.Now()
	r, err := s.deps.Leases.AcquireLease(ctx, &registrypb.AcquireLeaseRequest{
		Kind: registrypb.LeaseKind_LEASE_KIND_RUN, AgentId: id, Holder: s.cfg.Holder, Address: s.cfg.Address,
		RequestId: request, Ttl: durationpb.New(s.cfg.TTL),
	})
	if err != nil {
		f := fault.From(err)
		return f.Reason == fault.LeaseHeld && f.Meta["holder"] == s.cfg.Holder, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[id]
	switch {
	case s.draining:
		defer s.release(id, r.GetLease().GetResource(), r.GetLease().GetToken())
		return false, errEnding
	case c == nil || c.token != r.GetLease().GetToken():
		s.startLocked(id, r.GetLease(), sent)
	}
	return false, nil
}

// leaving tells that the claim begins nothing more.
func (c *claim) leaving() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return c.current().Ended()
	}
}

func await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c:
		return nil
	}
}
