package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/pause"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Defaults of a Config; that of its TTL is lease.DefaultTTL.
const (
	DefaultPoll  = 25 * time.Second
	DefaultGrace = 30 * time.Second
)

const (
	// fullPoll is the wait of a poll that asks for no new lease: its response says
	// whether other agents wait.
	fullPoll = 250 * time.Millisecond
	// pollMargin is how much longer than its wait a poll may take.
	pollMargin = 10 * time.Second
	// maxNew is the most leases that one poll may grant.
	maxNew = 256
	// releaseTime bounds a release.
	releaseTime = 5 * time.Second
)

// backoff is before a call to the registry is repeated.
var backoff = pause.Backoff{First: 50 * time.Millisecond, Last: 2 * time.Second}

// ErrEnding reports that the worker drains, or has ended.
var ErrEnding = errors.New("the worker is ending")

// Leases is the part of the registry's LeaseService that a worker needs.
type Leases interface {
	AcquireLease(ctx context.Context, in *registrypb.AcquireLeaseRequest, opts ...grpc.CallOption) (*registrypb.AcquireLeaseResponse, error)
	AcquireDueLease(ctx context.Context, in *registrypb.AcquireDueLeaseRequest, opts ...grpc.CallOption) (*registrypb.AcquireDueLeaseResponse, error)
	RenewLease(ctx context.Context, in *registrypb.RenewLeaseRequest, opts ...grpc.CallOption) (*registrypb.RenewLeaseResponse, error)
	ReleaseLease(ctx context.Context, in *registrypb.ReleaseLeaseRequest, opts ...grpc.CallOption) (*registrypb.ReleaseLeaseResponse, error)
}

// Work is what is done for one agent under one lease. The worker calls Run once;
// the other methods do not block, may be called at any time and repeatedly.
type Work interface {
	// Run works until nothing was to be done for lease.GrantKeep, a yield is
	// requested, or Close or Abort is called; the lease is given back then. An error
	// that wraps lease.ErrLost says that it is lost. When Run returns nothing runs.
	Run() error
	// Wake reports that there is more to do; threads are what the registry named.
	Wake(threads ...string)
	// Close lets what is under way finish and begins nothing more.
	Close()
	// Abort stops what is under way.
	Abort()
}

// Config of a Worker.
type Config struct {
	Kind registrypb.LeaseKind
	// Holder is this process in leases, Address where it can be called.
	Holder, Address string
	// TTL of leases, Poll of one wait for work, Grace of a drain; 0: the defaults.
	TTL, Poll, Grace time.Duration
}

// Deps are the live things of a Worker.
type Deps[W Work] struct {
	Leases Leases
	// Begin makes the work under a lease. Its calls run under the keeper's context.
	Begin func(agentID string, k *lease.Keeper) W
	// Free returns how many more leases the worker may take when some are held. It
	// may wait until that is one at least, or ctx ends.
	Free func(ctx context.Context, held int) int
	// GiveWay is called when agents wait because the worker is at its limit; nil: it is not.
	GiveWay func(waiting int)
	// EndRuns gets the runs that a renewal asks to end; it must not block. nil: it is
	// not called.
	EndRuns func(w W, runs []string)
	// Abort, when closed, ends a drain at once; nil never does.
	Abort  <-chan struct{}
	Logger *slog.Logger
}

// Worker holds the leases of one kind of a process.
type Worker[W Work] struct {
	cfg  Config
	deps Deps[W]

	starts  chan start[W] // grants that Take got, for Run to work under
	stopped chan struct{} // closed when Run takes no more of them

	mu      sync.Mutex
	terms   map[string]*Term[W]   // the newest of each agent
	all     map[*Term[W]]struct{} // those that have not ended yet
	asking  map[string]int        // calls of Take that ask for the lease, by agent
	owed    map[string][]string   // threads that became due meanwhile
	changed chan struct{}         // closed when terms change
	wg      sync.WaitGroup
}

// New makes a worker; it calls nothing before Run.
func New[W Work](c Config, d Deps[W]) *Worker[W] {
	orDefault(&c.TTL, lease.DefaultTTL)
	orDefault(&c.Poll, DefaultPoll)
	orDefault(&c.Grace, DefaultGrace)
	return &Worker[W]{
		cfg: c, deps: d, starts: make(chan start[W]), stopped: make(chan struct{}), changed: make(chan struct{}),
		terms: map[string]*Term[W]{}, all: map[*Term[W]]struct{}{}, asking: map[string]int{}, owed: map[string][]string{},
	}
}

func orDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// Run takes work until ctx ends, then drains: what is under way finishes within the
// grace or is aborted, and every lease is given back. It returns nil then. It may be
// called once.
func (w *Worker[W]) Run(ctx context.Context) error {
	// Work under a lease outlives ctx by the grace.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var poll sync.WaitGroup
	poll.Go(func() { w.poll(ctx, base) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case s := <-w.starts:
			s.reply <- w.granted(base, s)
		}
	}
	close(w.stopped)
	poll.Wait()
	w.drain()
	return nil
}

// drain ends all terms and waits for them. None begins any more.
func (w *Worker[W]) drain() {
	for t := range w.unended() {
		t.Close()
	}
	ended := make(chan struct{})
	go func() { defer close(ended); w.wg.Wait() }()
	grace := time.NewTimer(w.cfg.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
	case <-w.deps.Abort:
	}
	for t := range w.unended() {
		t.abort()
	}
	<-ended
}

// Terms returns the term of each agent whose work has begun and not ended.
func (w *Worker[W]) Terms() []*Term[W] {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*Term[W], 0, len(w.terms))
	for _, t := range w.terms {
		if t.begun {
			out = append(out, t)
		}
	}
	return out
}

func (w *Worker[W]) unended() map[*Term[W]]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.all)
}

// changedLocked wakes those who wait for a change of the terms.
func (w *Worker[W]) changedLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}
