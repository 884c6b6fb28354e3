package claim

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/lease"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

var errDrained = errors.New("the runner is ending")

// Leases is the part of the registry's LeaseService that claims need.
type Leases interface {
	AcquireLease(ctx context.Context, in *registrypb.AcquireLeaseRequest, opts ...grpc.CallOption) (*registrypb.AcquireLeaseResponse, error)
	AcquireDueLease(ctx context.Context, in *registrypb.AcquireDueLeaseRequest, opts ...grpc.CallOption) (*registrypb.AcquireDueLeaseResponse, error)
	RenewLease(ctx context.Context, in *registrypb.RenewLeaseRequest, opts ...grpc.CallOption) (*registrypb.RenewLeaseResponse, error)
	ReleaseLease(ctx context.Context, in *registrypb.ReleaseLeaseRequest, opts ...grpc.CallOption) (*registrypb.ReleaseLeaseResponse, error)
}

// Turn works on one event under a lease until it has its fate.
type Turn func(ctx context.Context, l Lease, e *registrypb.PendingEvent, s turn.Slot) error

// Lease is what a turn works under.
type Lease struct {
	AgentID string
	Token   uint64
	// Check answers nil while the lease is trusted.
	Check func() error
	// Panicked counts a panic of the agent's work.
	Panicked func()
}

// Fence is the lease as tools and receivers are shown it.
func (l Lease) Fence() string {
	return lease.AgentResource(l.AgentID) + "=" + strconv.FormatUint(l.Token, 10)
}

// Config of a Set; every field is set.
type Config struct {
	Holder, Address string
	// Agents is how many are worked on at a time.
	Agents int
	// TTL of leases, Keep of one without work, Poll of one call for work, Grace of
	// a drain, Quarantine of an agent.
	TTL, Keep, Poll, Grace, Quarantine time.Duration
}

// Deps are the live things of a Set.
type Deps struct {
	Leases Leases
	Inbox  batch.Inbox
	Turn   Turn
	// End ends a run that a person wants ended, as if he had asked here; nil: nobody does.
	End func(ctx context.Context, agentID, run string) error
	// Withdraw ends an event that no turn has begun.
	Withdraw batch.Withdraw
	Slots    *batch.Slots
	// Abort, when closed, ends a drain at once.
	Abort  <-chan struct{}
	Logger *slog.Logger
}

// Set is all claims of a process.
type Set struct {
	cfg    Config
	deps   Deps
	panics *quarantine

	// life is what claims live in: it ends when a drain is over, not when it
	// begins, so it belongs to no call.
	life context.Context //nolint:containedctx // see above
	end  context.CancelCauseFunc

	mu       sync.Mutex
	claims   map[string]*claim // by agent
	asking   map[string]int    // agents whose lease Join is asking for
	draining bool
	changed  chan struct{} // closed when claims change
	wg       sync.WaitGroup
}

// New makes an empty set; it calls nobody.
func New(c Config, d Deps) *Set {
	s := &Set{
		cfg: c, deps: d, panics: newQuarantine(c.Quarantine),
		claims: map[string]*claim{}, asking: map[string]int{}, changed: make(chan struct{}),
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// Run takes work until ctx ends, then drains: turns under way finish within the
// grace, the rest is left to the next holder, and every lease is given back.
func (s *Set) Run(ctx context.Context) {
	s.dispatch(ctx)
	s.drain()
}

func (s *Set) drain() {
	s.mu.Lock()
	s.draining = true
	for _, c := range s.claims {
		c.stop()
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() { defer close(ended); s.wg.Wait() }()
	grace := time.NewTimer(s.cfg.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
	case <-s.deps.Abort:
	}
	s.end(errDrained)
	<-ended
}

// Waiting is how many events stand behind others in their lanes.
func (s *Set) Waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.claims {
		n += c.current().Waiting()
	}
	return n
}

// changedLocked wakes those who wait for a claim. The caller holds mu.
func (s *Set) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}
