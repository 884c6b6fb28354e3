package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// claim is one lease of one agent, from its grant to its release.
//
//	granted --> batch --idle, had its share, yield, stop--> release
//	              |  ^
//	   3 panics   v  | half open, 5 min later: one turn at a time
//	            quarantine: the lease is kept, nothing is begun
type claim struct {
	s       *Set
	agentID string
	token   uint64
	since   time.Time
	lease   Lease // for turns; complete before the first one

	ready chan struct{}   // closed when lease and held are set
	held  context.Context //nolint:containedctx // of the lease, for work beside the batch

	stopped chan struct{} // closed by stop
	once    sync.Once
	done    chan struct{} // closed when the lease is given back

	ends sync.WaitGroup // of endRuns

	mu     sync.Mutex
	batch  *batch.Batch
	ending map[string]bool // runs that are being ended
}

// startLocked begins a claim; an older one of the agent is ended first. The
// caller holds mu and has seen that there is none with this token.
func (s *Set) startLocked(agentID string, l *registrypb.Lease, sent time.Time) *claim {
	c := &claim{
		s: s, agentID: agentID, token: l.GetToken(), since: time.Now(),
		ready: make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	c.batch = c.newBatch()
	before := s.claims[agentID]
	s.claims[agentID] = c
	s.changedLocked()
	if s.draining {
		c.stop()
	}
	s.wg.Go(func() {
		defer c.forget()
		if before != nil {
			before.stop() // its lease is lost, and it is about to find out
			<-before.done
		}
		c.run(lease.Grant{Resource: l.GetResource(), Token: l.GetToken(), TTL: l.GetTtl().AsDuration(), Sent: sent})
	})
	return c
}

func (c *claim) newBatch() *batch.Batch {
	return batch.New(
		batch.Config{AgentID: c.agentID, Token: c.token, Keep: c.s.cfg.Keep, Probe: c.s.panics.halfOpen(c.agentID)},
		batch.Deps{Inbox: c.s.deps.Inbox, Turn: c.turn, Withdraw: c.s.deps.Withdraw, Slots: c.s.deps.Slots, Logger: c.s.deps.Logger},
	)
}

func (c *claim) turn(ctx context.Context, e *registrypb.PendingEvent, slot turn.Slot) error {
	return c.s.deps.Turn(ctx, c.lease, e, slot)
}

// panicked counts a panic; one too many, and nothing more is begun.
func (c *claim) panicked() {
	if c.s.panics.strike(c.agentID) {
		c.current().Stop()
	}
}

func (c *claim) current() *batch.Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batch
}

func (c *claim) poke() { c.current().Poke() }

// stop lets running turns finish and then gives the lease back.
func (c *claim) stop() {
	c.once.Do(func() { close(c.stopped) })
	c.current().Stop()
}

func (c *claim) forget() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.claims[c.agentID] == c {
		delete(c.s.claims, c.agentID)
	}
	close(c.done)
	c.s.changedLocked()
}

// run works under the lease until there is a reason to give it back.
func (c *claim) run(g lease.Grant) {
	s, log := c.s, c.s.deps.Logger.With("agent_id", c.agentID, "fencing_token", c.token)
	renew := renewer{s.deps.Leases, s.cfg.Holder, c.endRuns}
	// A long poll may answer when most of the trust in its grant has passed.
	if time.Since(g.Sent) > g.TTL/5 {
		g.Sent = time.Now()
		ctx, cancel := context.WithTimeout(s.life, g.TTL/3)
		_, err := renew.Renew(ctx, g.Resource, g.Token)
		cancel()
		if err != nil {
			log.Warn("lease not usable", "error", fault.Chain(err))
			if !errors.Is(err, lease.ErrLost) {
				s.release(c.agentID, g.Resource, g.Token)
			}
			return
		}
	}
	keeper := lease.Keep(s.life, renew, g, lease.Options{OnError: func(err error) {
		log.Debug("lease not renewed", "error", fault.Chain(err))
	}})
	defer c.ends.Wait()
	defer keeper.Stop()
	ctx := rpc.WithFence(keeper.Context(), g.Resource, g.Token, s.cfg.Holder)
	c.lease = Lease{AgentID: c.agentID, Token: c.token, Check: keeper.Check, Panicked: c.panicked}
	c.held = ctx
	close(c.ready)
	log.Debug("lease taken")
	for {
		if err := c.current().Work(ctx, keeper.Yield()); err != nil && !errors.Is(err, errDrained) {
			log.Warn("batch ended", "error", fault.Chain(err))
			if errors.Is(err, lease.ErrLost) || errors.Is(err, turn.ErrLost) {
				return
			}
			break
		}
		if !c.sitOut(ctx, keeper.Yield()) {
			break
		}
	}
	s.release(c.agentID, g.Resource, g.Token)
	log.Debug("lease given back")
}

// sitOut waits for the end of the agent's quarantine, if it is in one, and tells
// whether to go on. The lease is kept meanwhile: given back, it would be granted
// again at once, here or to the next runner that the agent brings down.
func (c *claim) sitOut(ctx context.Context, yield <-chan struct{}) bool {
	left := c.s.panics.left(c.agentID)
	if left <= 0 {
		return false
	}
	c.s.deps.Logger.Error("agent set aside after repeated panics", "agent_id", c.agentID, "for", left.String())
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-yield:
	case <-c.stopped:
	case <-timer.C:
		c.mu.Lock()
		c.batch = c.newBatch()
		c.mu.Unlock()
		select {
		case <-c.stopped: // between the two
			return false
		default:
			return true
		}
	}
	return false
}

// renewer carries renewals to the registry.
type renewer struct {
	leases Leases
	holder string
	end    func(runs []string) // must not block
}

// Renew implements lease.Renewer.
func (r renewer) Renew(ctx context.Context, resource string, token uint64) (lease.RenewReply, error) {
	a, err := r.leases.RenewLease(ctx, &registrypb.RenewLeaseRequest{Resource: resource, Token: token, Holder: r.holder})
	if fault.Is(err, fault.LeaseLost) {
		return lease.RenewReply{}, fmt.Errorf("%w: %w", lease.ErrLost, err)
	}
	if err != nil {
		return lease.RenewReply{}, fmt.Errorf("renew lease: %w", err)
	}
	r.end(a.GetAbortRunIds())
	return lease.RenewReply{TTL: a.GetTtl().AsDuration(), YieldRequested: a.GetYieldRequested()}, nil
}
