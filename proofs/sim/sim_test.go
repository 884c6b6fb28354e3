//go:build proof

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/proofs/drill"
)

const ttl = time.Second

// work is what a holder does under its lease.
type work func(ctx context.Context, e store.Engine, f store.Fence) error

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
	s := &site{
		t: t, root: root, home: home, story: drill.NewScenario(), chance: rand.New(rand.NewPCG(seed, 2)), last: map[string]string{},
		left: map[string]time.Time{}, dead: map[string]bool{}, highest: map[string]uint64{}, written: map[string]uint64{},
	}
	s.open()
	s.story.BootID = "boot"
	s.story.Mode = []string{"followup", "collect", "steer"}[seed%3]
	s.story.Accepted = s.accepted
	s.story.Between = func(ctx context.Context, label string) error {
		if f, ok := ctx.Value(termKey{}).(func(string) error); ok {
			return f(label)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	source := rand.New(rand.NewPCG(seed, 1))
	for i := range 2 {
		for k, resource := range []string{"agent/a", "deliver/a"} {
			stream := uint64(10 + 4*i + 2*k)
			h := &holder{
				site: s, process: fmt.Sprint(resource, i), resource: resource, work: []work{s.story.Work, s.story.Deliver}[k],
				chance: rand.New(rand.NewPCG(seed, stream)), network: rand.New(rand.NewPCG(seed, stream+1)),
				told: make(chan struct{}, 1), swept: make(chan struct{}, 1), orders: make(chan order, 1),
			}
			s.holders = append(s.holders, h)
		}
	}
	for _, h := range s.holders {
		all.Go(func() { h.live(ctx) })
	}
	all.Go(func() { s.sweeping(ctx) })
	all.Go(func() { s.operating(ctx, rand.New(rand.NewPCG(seed, 3))) })
	for n := range messages {
		time.Sleep(time.Duration(source.IntN(2000)) * time.Millisecond)
		for s.story.Push(ctx, locked{s: s}, n) != nil || source.IntN(20) == 0 { // a lost answer: pushed again
		}
		s.tell("agent/a")
		if source.IntN(10) == 0 {
			s.restart(ctx)
		}
	}
	time.Sleep(10 * time.Second)
	cancel()
	all.Wait()
	// What is left is finished without any fault.
	s.story.Between = nil
	for _, last := range []struct {
		resource string
		work     work
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
		drill.Line("sim seeds=%d simulated=%v grants=%d takeovers=%d (without waiting for a ttl: %d) faults=%d (lost calls %d, lost wake-ups %d, stalls %d, kills %d, drains %d, restarts %d) refused_writers=%d sweeps=%d (work that only they found: %d) %s seed=%d",
			seeds, hours.Round(time.Second), c.grants, c.takeovers, c.early, c.faults(), c.lostCalls, c.lostWakes, c.stalls, c.kills, c.drains, c.restarts,
			c.refused, c.sweeps, c.swept, &fig, seed)
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
	if c.takeovers < 20*seeds || min(c.lostCalls, c.lostWakes, c.stalls, c.kills, c.drains, c.restarts, c.refused, c.swept, c.early) == 0 {
		t.Error("too little has happened to show anything")
	}
	if fig.Dead > 0 {
		t.Errorf("%d messages are dead", fig.Dead)
	}
}
