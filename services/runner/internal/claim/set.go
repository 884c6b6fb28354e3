package claim

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/worker"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

var errEnding = fault.New(codes.Unavailable, fault.ServiceUnavailable, "the runner is shutting down", "try again")

// Turn works on one event under a lease until it has its fate.
type Turn func(ctx context.Context, l Lease, e *registrypb.PendingEvent, s turn.Slot) error

// Lease is what a turn works under.
type Lease struct {
	AgentID string
	Token   uint64
	// Check returns nil while the lease is trusted.
	Check func() error
	// Panicked counts a panic of the turn of an event, by its key; Dead reports that this
	// event is dead.
	Panicked, Dead func(key string)
}

// Fence is the lease as tools and receivers are shown it.
func (l Lease) Fence() string {
	return lease.AgentResource(l.AgentID) + "=" + strconv.FormatUint(l.Token, 10)
}

// Config of a Set.
type Config struct {
	Holder, Address string
	// Agents is how many are worked on at a time.
	Agents int
	// TTL of leases, Poll of one call for work, Grace of a drain; 0: those of package
	// worker.
	TTL, Poll, Grace time.Duration
	// Keep of a lease without work, Quarantine of an agent.
	Keep, Quarantine time.Duration
}

// Deps are the live things of a Set.
type Deps struct {
	Leases worker.Leases
	Inbox  batch.Inbox
	Turn   Turn
	// End ends a run that a person aborts, as if the request had come here; nil: no run is
	// ended.
	End func(ctx context.Context, agentID, run string) error
	// Cut ends what a command stops.
	Cut   batch.Abort
	Slots *batch.Slots
	// Abort, when closed, ends a drain at once.
	Abort  <-chan struct{}
	Logger *slog.Logger
}

// Set is all claims of a process.
type Set struct {
	cfg    Config
	deps   Deps
	panics *quarantine
	worker *worker.Worker[*claim]
}

// New makes an empty set; it makes no call.
func New(c Config, d Deps) *Set {
	s := &Set{cfg: c, deps: d, panics: newQuarantine(c.Quarantine)}
	s.worker = worker.New(worker.Config{
		Kind: registrypb.LeaseKind_LEASE_KIND_RUN, Holder: c.Holder, Address: c.Address, TTL: c.TTL, Poll: c.Poll, Grace: c.Grace,
	}, worker.Deps[*claim]{
		Leases: d.Leases, Begin: s.begin, Free: func(_ context.Context, held int) int { return c.Agents - held },
		GiveWay: s.giveWay, EndRuns: (*claim).endRuns, Abort: d.Abort, Logger: d.Logger,
	})
	return s
}

// Run takes work until ctx ends, then drains: turns under way finish within the
// grace, the rest is left to the next holder, and every lease is given back.
func (s *Set) Run(ctx context.Context) error { return s.worker.Run(ctx) }

// RunTo works until every inbox event of the agent up to head has its fate, in the
// claim that is there or in one of its own, and returns how many got theirs. may is
// called before each claim; its error, such as that the agent was stopped
// meanwhile, ends the wait.
// Errors: FAILED_PRECONDITION, LEASE_HELD when another process has the lease and
// AGENT_FAILED in a quarantine; UNAVAILABLE in a drain.
func (s *Set) RunTo(ctx context.Context, agentID string, head int64, may func(context.Context) error) (processed int64, err error) {
	err = s.with(ctx, agentID, may, func(_ *claim, b *batch.Batch) error {
		n, err := b.WaitTo(ctx, head)
		processed += n
		return err
	})
	return processed, err
}

// Withdraw ends an event that no turn has begun, in the claim that is there or in
// one of its own. False when its turn has begun here, or it has its fate. Errors
// as of RunTo.
func (s *Set) Withdraw(ctx context.Context, agentID, key string) (ok bool, err error) {
	err = s.with(ctx, agentID, nil, func(_ *claim, b *batch.Batch) (err error) {
		ok, err = b.Withdraw(ctx, key)
		return err
	})
	return ok, err
}

// Background does background work, which answers no event, under the lease of an
// agent, in the claim that is there or in one of its own. Its context ends with the
// lease, and with the caller's; a drain waits for it as it does for a turn.
// Errors: those of [Set.RunTo], and those of work.
func (s *Set) Background(ctx context.Context, agentID string, work func(context.Context, Lease) error) error {
	return s.with(ctx, agentID, nil, func(c *claim, b *batch.Batch) error {
		end, ok := b.BeginBackground()
		if !ok {
			return batch.ErrEnded
		}
		defer end()
		workCtx, cancel := context.WithCancelCause(c.ctx)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		return work(workCtx, c.lease)
	})
}

// Held is a lease that is kept for work next to the turns.
type Held struct {
	Lease

	// Ctx ends with the lease; calls to the registry that are made with it carry the fence.
	Ctx context.Context //nolint:containedctx // of the lease, not of a call
	// Stop is closed when the batch is to end: by a drain, a person or another holder. The work
	// then ends at once.
	Stop <-chan struct{}
	// Release gives the hold back. It is called once.
	Release func()
}

// Hold keeps the lease of an agent, in the claim that is there or in one of its own. The claim
// makes no room for other agents meanwhile. Errors: those of [Set.RunTo].
func (s *Set) Hold(ctx context.Context, agentID string) (h Held, err error) {
	err = s.with(ctx, agentID, nil, func(c *claim, b *batch.Batch) error {
		stop, end, ok := b.Hold()
		if !ok {
			return batch.ErrEnded
		}
		h = Held{Lease: c.lease, Ctx: c.ctx, Stop: stop, Release: end}
		return nil
	})
	return h, err
}

// with calls do with the batch of an agent, and takes the lease for one if need be:
// again when that batch ended first. may is called before each; it may be nil.
func (s *Set) with(ctx context.Context, id string, may func(context.Context) error, do func(*claim, *batch.Batch) error) error {
	var (
		over    <-chan struct{} // of the claim whose batch ended
		changed <-chan struct{} // or it has another one
	)
	for {
		if may != nil {
			if err := may(ctx); err != nil {
				return err
			}
		}
		if left := s.panics.left(id); left > 0 {
			f := fault.New(codes.FailedPrecondition, fault.AgentFailed, "agent '"+id+"' is set aside after repeated panics", "wait, and look into the runner's log")
			f.RetryAfter = left
			return f
		}
		if over != nil {
			select {
			case <-over:
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		t, err := s.worker.Take(ctx, id)
		if errors.Is(err, worker.ErrEnding) {
			return errEnding
		}
		if err != nil {
			return err
		}
		c := t.Work
		var b *batch.Batch
		b, changed = c.current()
		if err := do(c, b); !errors.Is(err, batch.ErrEnded) {
			return err
		}
		over = t.Done()
	}
}

// giveWay ends as many claims as agents wait for a place here: first those that
// have nothing to do, then those that had their share, the oldest first. What they
// leave is due again at once, behind those who wait.
func (s *Set) giveWay(waiting int) {
	var idle, had []*worker.Term[*claim]
	for _, t := range s.worker.Terms() {
		b, _ := t.Work.current()
		if s.panics.left(t.Work.agentID) > 0 {
			continue // set aside: its place is not free soon
		}
		if t.Closed() || b.Ended() {
			waiting--
			continue
		}
		switch b.Share() {
		case batch.Idle:
			idle = append(idle, t)
		case batch.ShareUsed:
			had = append(had, t)
		case batch.Working:
		}
	}
	slices.SortFunc(had, func(a, b *worker.Term[*claim]) int { return a.Work.since.Compare(b.Work.since) })
	for _, t := range append(idle, had...) {
		if waiting--; waiting < 0 {
			return
		}
		t.Close()
	}
}

// Waiting is how many events stand behind others in their lanes.
func (s *Set) Waiting() (n int) {
	for _, t := range s.worker.Terms() {
		b, _ := t.Work.current()
		n += b.Waiting()
	}
	return n
}
