//go:build proof

package sim_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/proofs/drill"
)

// sweepEvery is how long work waits that nobody was told of.
const sweepEvery = 30 * time.Second

// counts are what a simulation did to its people.
type counts struct {
	grants, takeovers int
	// Faults.
	lostCalls, lostWakes, stalls, kills, drains, restarts int
	// What came of them: writers that were refused, work that only a sweep found,
	// leases of a dead or drained holder that were granted before their ttl was over.
	refused, sweeps, swept, early int
}

func (c *counts) add(o counts) {
	c.grants += o.grants
	c.takeovers += o.takeovers
	c.lostCalls += o.lostCalls
	c.lostWakes += o.lostWakes
	c.stalls += o.stalls
	c.kills += o.kills
	c.drains += o.drains
	c.restarts += o.restarts
	c.refused += o.refused
	c.sweeps += o.sweeps
	c.swept += o.swept
	c.early += o.early
}

func (c *counts) faults() int {
	return c.lostCalls + c.lostWakes + c.stalls + c.kills + c.drains + c.restarts
}

// site is one home in a bubble.
type site struct {
	t       *testing.T
	root    string
	home    *homedb.DB
	story   *drill.Scenario
	chance  *rand.Rand // of the registry's own bad luck; under mu
	holders []*holder

	mu     sync.Mutex
	table  *lease.Table
	engine *sqlite.Engine
	counts
	last    map[string]string    // process that held a resource last
	left    map[string]time.Time // when the last holder went, and its lease had ttl to go
	dead    map[string]bool      // holders that certainly run no more
	highest map[string]uint64    // granted token
	written map[string]uint64    // accepted token

	calls sync.RWMutex // held by every call; a restart takes it alone
}

// open starts a registry: what it knows is what is on disk.
func (s *site) open() {
	table, err := lease.NewTable(s.t.Context(), s.home, s.gone)
	if err != nil {
		s.t.Fatal(err)
	}
	s.table = table
	s.engine = sqlite.New(sqlite.Options{
		Path: func(r store.Ref) (string, error) { return filepath.Join(s.root, r.Agent, r.Thread), nil },
		Live: table.Check,
	})
}

// gone is what the lock of a holder would say.
func (s *site) gone(holder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead[holder]
}

// restart ends the registry between two calls and starts it again. Who was to be
// told of work is forgotten; the sweep after the start finds it.
func (s *site) restart(ctx context.Context) {
	s.calls.Lock()
	if err := s.engine.Close(); err != nil {
		s.t.Error(err)
	}
	s.open()
	s.calls.Unlock()
	s.count(func(c *counts) { c.restarts++ })
	for _, h := range s.holders {
		select {
		case <-h.told:
		default:
		}
	}
	s.sweep(ctx)
}

// tell wakes those who work on a resource. Now and then nobody hears it.
func (s *site) tell(resource string) {
	s.mu.Lock()
	lost := s.chance.IntN(5) == 0
	if lost {
		s.lostWakes++
	}
	s.mu.Unlock()
	for _, h := range s.holders {
		if h.resource == resource && !lost {
			ring(h.told)
		}
	}
}

// sweep wakes everybody: whoever was told of nothing looks for himself.
func (s *site) sweep(ctx context.Context) {
	s.calls.RLock()
	s.table.Reap(ctx)
	s.calls.RUnlock()
	s.count(func(c *counts) { c.sweeps++ })
	for _, h := range s.holders {
		ring(h.swept)
	}
}

// sweeping is the registry's sweep.
func (s *site) sweeping(ctx context.Context) {
	for {
		if pause(ctx, sweepEvery); ctx.Err() != nil {
			return
		}
		s.sweep(ctx)
	}
}

// operating drains and kills processes by and by, as an operator and his machines do.
func (s *site) operating(ctx context.Context, chance *rand.Rand) {
	for {
		if pause(ctx, time.Duration(chance.IntN(8_000))*time.Millisecond); ctx.Err() != nil {
			return
		}
		h := s.holders[chance.IntN(len(s.holders))]
		select {
		case h.orders <- []order{drain, kill}[chance.IntN(2)]:
		default: // it has not followed the last one yet
		}
	}
}

func (s *site) count(f func(*counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.counts)
}

// acquire asks for a resource and notes what is granted (I6).
func (s *site) acquire(ctx context.Context, resource, holder, request string) (lease.Record, error) {
	s.calls.RLock()
	defer s.calls.RUnlock()
	r, err := s.table.Acquire(ctx, lease.AcquireRequest{Resource: resource, Holder: holder, RequestID: request, TTL: ttl})
	if err != nil {
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Token <= s.highest[resource] {
		s.t.Errorf("%s: token %d was granted after %d", resource, r.Token, s.highest[resource])
	}
	s.highest[resource] = r.Token
	s.grants++
	process, _, _ := strings.Cut(holder, ".")
	if before := s.last[resource]; before != "" && before != process {
		s.takeovers++
		if at, ok := s.left[resource]; ok && time.Since(at) < ttl {
			s.early++
		}
	}
	delete(s.left, resource)
	s.last[resource] = process
	return r, nil
}

// accepted notes a write that was taken; tokens never fall (I4).
func (s *site) accepted(f store.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Token < s.written[f.Resource] {
		s.t.Errorf("%s: a write with token %d was accepted after one with %d", f.Resource, f.Token, s.written[f.Resource])
	}
	s.written[f.Resource] = f.Token
}

// ring wakes one waiter, now or when it next waits.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
