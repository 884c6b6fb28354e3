// Package sim_test simulates two runners and two deliverers of one agent over
// years of bad luck in a synctest bubble: the real lease table, the real keeper
// and the real engine, with calls that are lost before or after they had their
// effect, holders that stall past their ttl and wake up, and a registry that
// starts again.
//
// The calls are direct, since real sockets would freeze the bubble's clock, so a
// fault is injected where a call would have been.
package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/proofs/drill"
)

const ttl = time.Second

var errDropped = errors.New("the call was lost")

// counts are what a simulation did to its people.
type counts struct {
	grants, takeovers, dropped, stalls, refused, restarts int
}

func (c *counts) add(o counts) {
	c.grants += o.grants
	c.takeovers += o.takeovers
	c.dropped += o.dropped
	c.stalls += o.stalls
	c.refused += o.refused
	c.restarts += o.restarts
}

// site is one home in a bubble.
type site struct {
	t     *testing.T
	root  string
	home  *homedb.DB
	story *drill.Story

	mu     sync.Mutex
	table  *lease.Table
	engine *sqlite.Engine
	counts
	holder  map[string]string // last holder of a resource
	highest map[string]uint64 // granted token
	written map[string]uint64 // accepted token

	calls sync.RWMutex // held by every call; a restart takes it alone
}

// open starts a registry: what it knows is what is on disk.
func (s *site) open() {
	table, err := lease.NewTable(s.t.Context(), s.home, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.table = table
	s.engine = sqlite.New(sqlite.Options{
		Path: func(r store.Ref) (string, error) { return filepath.Join(s.root, r.Agent, r.Thread), nil },
		Live: table.Check,
	})
}

// restart ends the registry between two calls and starts it again.
func (s *site) restart() {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.engine.Close(); err != nil {
		s.t.Error(err)
	}
	s.open()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts++
}

// acquire asks for a resource and notes what is granted.
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
	if before := s.holder[resource]; before != "" && before != holder {
		s.takeovers++
	}
	s.holder[resource] = holder
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

// holder is one process that takes a resource, works, and has accidents.
type holder struct {
	*site
	name, resource string
	chance         *rand.Rand
	work           func(ctx context.Context, e store.Engine, f store.Fence) error
	asleep         atomic.Int64 // until then
}

// Renew carries a renewal over a bad network.
func (h *holder) Renew(ctx context.Context, resource string, token uint64) (lease.RenewReply, error) {
	pause(ctx, time.Until(time.Unix(0, h.asleep.Load()))) // a stopped process renews nothing
	luck := h.chance.IntN(8)
	if luck == 0 {
		h.drop()
		return lease.RenewReply{}, errDropped
	}
	h.calls.RLock()
	_, err := h.table.Renew(resource, h.name, token)
	h.calls.RUnlock()
	if luck == 1 {
		h.drop()
		return lease.RenewReply{}, errDropped // the answer was lost
	}
	return lease.RenewReply{}, err
}

func (h *holder) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped++
}

// pause lets simulated time pass.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// trouble is what may come between two steps of a term.
func (h *holder) trouble(_ context.Context, k *lease.Keeper) error {
	switch luck := h.chance.IntN(40); {
	case luck == 0: // the process stops past the ttl, and goes on as if nothing had been
		h.mu.Lock()
		h.stalls++
		h.mu.Unlock()
		stop := ttl + time.Duration(h.chance.IntN(2000))*time.Millisecond
		h.asleep.Store(time.Now().Add(stop).UnixNano())
		time.Sleep(stop)
		return nil // it does not even look at its lease: the fence has to
	case luck <= 2:
		h.drop()
		return errDropped
	default:
		time.Sleep(time.Duration(h.chance.IntN(60)) * time.Millisecond)
		return k.Check()
	}
}

type termKey struct{}

// live takes the resource again and again until ctx ends.
func (h *holder) live(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		pause(ctx, time.Duration(h.chance.IntN(300))*time.Millisecond)
		sent := time.Now()
		r, err := h.acquire(ctx, h.resource, h.name, fmt.Sprint(h.name, n))
		if err != nil {
			continue
		}
		k := lease.Keep(ctx, h, lease.Grant{Resource: r.Resource, Token: r.Token, TTL: r.TTL, Sent: sent}, lease.Options{})
		term := context.WithValue(context.WithoutCancel(ctx), termKey{}, func(ctx context.Context) error { return h.trouble(ctx, k) })
		err = nil
		for range 3 {
			if err = h.under(term, r); err != nil {
				break
			}
		}
		if errors.Is(err, store.ErrLeaseLost) {
			h.mu.Lock()
			h.refused++
			h.mu.Unlock()
		}
		k.Stop()
		if h.chance.IntN(3) > 0 { // else it went without a word
			h.calls.RLock()
			_ = h.table.Release(term, r.Resource, r.Token)
			h.calls.RUnlock()
		}
	}
}

func (h *holder) under(ctx context.Context, r lease.Record) error {
	return h.work(ctx, locked{s: h.site}, store.Fence{Resource: r.Resource, Token: r.Token})
}

// simulate lives through one seed and answers what was found.
func simulate(t *testing.T, root string, seed uint64, messages int) (counts, drill.Figures) {
	inbox := filepath.Join(root, drill.Agent, "inbox")
	if err := os.MkdirAll(inbox, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Create(inbox); err != nil {
		t.Fatal(err)
	}
	home, err := homedb.Open(t.Context(), filepath.Join(root, "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, root: root, home: home, story: drill.NewStory(), holder: map[string]string{}, highest: map[string]uint64{}, written: map[string]uint64{}}
	s.open()
	s.story.BootID = "boot"
	s.story.Accepted = s.accepted
	s.story.Between = func(ctx context.Context, _ string) error {
		if f, ok := ctx.Value(termKey{}).(func(context.Context) error); ok {
			return f(ctx)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	source := rand.New(rand.NewPCG(seed, 1))
	for i := range 2 {
		for resource, work := range map[string]func(context.Context, store.Engine, store.Fence) error{"agent/a": s.story.Work, "deliver/a": s.story.Deliver} {
			h := &holder{site: s, name: fmt.Sprint(resource, i), resource: resource, work: work}
			h.chance = rand.New(rand.NewPCG(seed, uint64(i*2+len(resource))))
			all.Go(func() { h.live(ctx) })
		}
	}
	for n := range messages {
		time.Sleep(time.Duration(source.IntN(2000)) * time.Millisecond)
		for s.story.Push(ctx, locked{s: s}, n) != nil || source.IntN(20) == 0 { // a lost answer: pushed again
		}
		if source.IntN(10) == 0 {
			s.restart()
		}
	}
	time.Sleep(10 * time.Second)
	cancel()
	all.Wait()
	// What is left is finished without any fault.
	s.story.Between = nil
	for _, last := range []struct {
		resource string
		work     func(context.Context, store.Engine, store.Fence) error
	}{{"agent/a", s.story.Work}, {"deliver/a", s.story.Deliver}} {
		for round := range 2 + messages/32 {
			time.Sleep(2 * time.Minute) // every lease and every wait is over
			r, err := s.acquire(t.Context(), last.resource, "last", fmt.Sprint(round))
			if err != nil {
				t.Fatal(err)
			}
			if err := last.work(t.Context(), s.engine, store.Fence{Resource: last.resource, Token: r.Token}); err != nil {
				t.Fatal(err)
			}
			if err := s.table.Release(t.Context(), last.resource, r.Token); err != nil {
				t.Fatal(err)
			}
		}
	}
	fig, err := s.story.Account(t.Context(), s.engine, func(r store.Ref) error { _, err := s.engine.VerifyChain(t.Context(), r); return err }, t.Errorf)
	if err := errors.Join(err, s.engine.Close(), home.Close()); err != nil {
		t.Error(err)
	}
	return s.counts, fig
}

// TestSimulation runs SEEDS seeds of MESSAGES messages each; the first seed is
// SEED.
func TestSimulation(t *testing.T) {
	seeds, messages := drill.Size(t, "SEEDS", 6), drill.Size(t, "MESSAGES", 100)
	seed, _ := drill.Seed(t)
	var c counts
	var fig drill.Figures
	var hours time.Duration
	at := seed
	defer func() { // a bubble that failed ends the test
		if t.Failed() {
			t.Logf("it was SEED=%d SEEDS=1", at)
		}
		drill.Line("sim seeds=%d simulated=%v grants=%d takeovers=%d stalls=%d lost_calls=%d refused_writers=%d restarts=%d %s seed=%d",
			seeds, hours.Round(time.Second), c.grants, c.takeovers, c.stalls, c.dropped, c.refused, c.restarts, &fig, seed)
	}()
	for i := range seeds {
		at = seed + uint64(i)
		root := drill.RAM(t)
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			n, f := simulate(t, root, at, messages)
			hours += time.Since(begin)
			c.add(n)
			fig.Add(f)
		})
	}
	if c.takeovers < 20*seeds || c.stalls == 0 || c.refused == 0 || c.restarts == 0 {
		t.Error("too little has happened to show anything")
	}
	if fig.Dead > 0 {
		t.Errorf("%d messages are dead", fig.Dead)
	}
}
