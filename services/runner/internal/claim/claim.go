package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

var errDrained = errors.New("the runner is shutting down")

// claim is the work under one lease of one agent.
//
//	batch --idle, had its share, yield, closed--> over: the lease is given back
//	 |  ^
//	 |  | the event that panicked is dead: at once
//	 |  | 5 min later, half open: one turn at a time
//	 v  |
//	quarantine after 3 panics: the lease is kept, nothing is begun
type claim struct {
	s       *Set
	agentID string
	since   time.Time
	keeper  *lease.Keeper
	lease   Lease

	// ctx is that of the lease with its fence, until Abort. It is for what is done
	// next to the batch.
	ctx    context.Context //nolint:containedctx // see above
	cancel context.CancelCauseFunc

	closed chan struct{} // by Close
	once   sync.Once

	ends   sync.WaitGroup // of endRuns
	struck atomic.Bool    // the batch was ended because of panics

	mu      sync.Mutex
	batch   *batch.Batch
	changed chan struct{}   // closed when batch is another one, or set aside
	ending  map[string]bool // runs that are being ended
	over    bool            // no more of them
}

// begin makes the claim of an agent.
func (s *Set) begin(agentID string, k *lease.Keeper) *claim {
	c := &claim{s: s, agentID: agentID, since: time.Now(), keeper: k, closed: make(chan struct{}), changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(rpc.WithFence(k.Context(), lease.AgentResource(agentID), k.Token(), s.cfg.Holder))
	c.lease = Lease{AgentID: agentID, Token: k.Token(), Check: k.Check, Panicked: c.panicked, Dead: func(key string) { s.panics.forgive(agentID, key) }}
	c.batch = c.newBatch()
	return c
}

func (c *claim) newBatch() *batch.Batch {
	return batch.New(
		batch.Config{AgentID: c.agentID, Token: c.lease.Token, Keep: c.s.cfg.Keep, Probe: c.s.panics.halfOpen(c.agentID)},
		batch.Deps{
			Inbox: c.s.deps.Inbox, Abort: c.s.deps.Cut, Slots: c.s.deps.Slots, Logger: c.s.deps.Logger,
			Turn: func(ctx context.Context, e *registrypb.PendingEvent, slot turn.Slot) error {
				return c.s.deps.Turn(ctx, c.lease, e, slot)
			},
		},
	)
}

// panicked counts a panic; one too many, and nothing more is begun.
func (c *claim) panicked(key string) {
	if c.s.panics.strike(c.agentID, key) {
		c.struck.Store(true)
		b, _ := c.current()
		b.Stop()
	}
}

// current returns the batch, and what is closed when it is another one or set aside.
func (c *claim) current() (*batch.Batch, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batch, c.changed
}

// change lets those who wait for another batch look again; b is it, if there is one.
func (c *claim) change(b *batch.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b != nil {
		c.batch = b
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// Wake implements worker.Work.
func (c *claim) Wake(...string) {
	b, _ := c.current()
	b.Wake()
}

// Close implements worker.Work: running turns finish.
func (c *claim) Close() {
	c.once.Do(func() { close(c.closed) })
	b, _ := c.current()
	b.Stop()
}

// Abort implements worker.Work: what is unfinished is the next holder's.
func (c *claim) Abort() { c.cancel(errDrained) }

// Run implements worker.Work.
func (c *claim) Run() error {
	defer c.stopEndingRuns()
	for {
		b, _ := c.current()
		switch err := b.Work(c.ctx, c.keeper.Yield()); {
		case errors.Is(err, errDrained):
			return nil
		case errors.Is(err, turn.ErrLost):
			return fmt.Errorf("%w: %w", lease.ErrLost, err)
		case err != nil:
			return err
		}
		if !c.waitQuarantine() {
			return nil
		}
	}
}

// waitQuarantine waits for the end of the agent's quarantine, if it is in one, and reports
// whether to go on. The lease is kept meanwhile: given back, it would be granted
// again at once, here or to the next runner that the agent brings down.
func (c *claim) waitQuarantine() bool {
	left, struck := c.s.panics.left(c.agentID), c.struck.Swap(false)
	if left > 0 {
		c.s.deps.Logger.Error("agent set aside after repeated panics", "agent_id", c.agentID, "for", left.String())
		c.change(nil)
		if !c.waitAside(left) {
			return false
		}
	} else if !struck {
		return false
	}
	b := c.newBatch()
	c.change(b)
	select {
	case <-c.closed: // before the change: then the batch before it was stopped
		b.Stop() // and this one ends at once, for those who wait for it
	default:
	}
	return true
}

// waitAside waits for the end of a quarantine, and reports meanwhile to the registry how long
// it lasts, so that people see it. False when the claim ends before.
func (c *claim) waitAside(left time.Duration) bool {
	end := time.NewTimer(left)
	defer end.Stop()
	report := time.NewTicker(reportEvery)
	defer report.Stop()
	for {
		c.reportAside(c.s.panics.left(c.agentID))
		select {
		case <-c.ctx.Done():
			return false
		case <-c.keeper.Yield():
			return false
		case <-c.closed:
			return false
		case <-end.C:
			return true
		case <-report.C:
		}
	}
}

// reportAside reports to the registry that the agent is left alone. It is for people to see, so
// a failure changes nothing; the next report makes up for it.
func (c *claim) reportAside(left time.Duration) {
	ctx, cancel := context.WithTimeout(c.ctx, reportTime)
	defer cancel()
	_, err := c.s.deps.Inbox.OpenBatch(ctx, &registrypb.OpenBatchRequest{AgentId: c.agentID, SetAside: durationpb.New(left)})
	if err != nil && c.ctx.Err() == nil {
		c.s.deps.Logger.Info("quarantine not reported", "agent_id", c.agentID, "error", fault.Chain(err))
	}
}

// A quarantine is reported again, for a registry that was restarted.
const (
	reportEvery = 30 * time.Second
	reportTime  = 5 * time.Second
)

// endRuns ends runs that people want ended who cannot reach this runner: the registry
// has sent it with a renewal, and sends it again with the next.
func (c *claim) endRuns(runs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, run := range runs {
		if c.over || c.ending[run] || c.s.deps.End == nil {
			continue
		}
		if c.ending == nil {
			c.ending = map[string]bool{}
		}
		c.ending[run] = true
		c.ends.Go(func() {
			if err := c.s.deps.End(c.ctx, c.agentID, run); err != nil {
				c.s.deps.Logger.Info("run not aborted", "agent_id", c.agentID, "run_id", run, "error", fault.Chain(err))
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.ending, run)
		})
	}
}

// stopEndingRuns begins to end no more runs and waits for those that are being ended.
func (c *claim) stopEndingRuns() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.cancel(context.Canceled)
	c.ends.Wait()
}
