package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// pushed is what writers were told: the id under each key.
type pushed struct {
	mu   sync.Mutex
	ids  map[string]int64
	news chan struct{} // of each
}

func (p *pushed) put(key string, id int64) {
	p.mu.Lock()
	p.ids[key] = id
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default: // nobody waits for it: the writer does not either
	}
}

// The server is killed -9 under load and comes up again, some times: what was
// acknowledged is there, and what was pushed again under its key is there once. Nobody
// was told anything but an error of the way to the server.
func TestServerKilled(t *testing.T) {
	c := cluster(t)
	e := open(t, Options{DSN: c.Database(t), Live: anyLease})
	refs := []store.Ref{store.Inbox("a"), store.Inbox("b")}
	told := map[store.Ref]*pushed{}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for _, r := range refs {
		told[r] = &pushed{ids: map[string]int64{}, news: make(chan struct{})}
		for w := range 4 {
			writers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					// not by ctx: a commit that is given up may still come, between two looks
					push(t.Context(), t, e, r, fmt.Sprint("w", w, "n", n), told[r])
				}
			})
		}
	}
	for round := range 3 {
		for range 100 {
			select {
			case <-told[refs[0]].news:
			case <-told[refs[1]].news:
			case <-time.After(time.Minute):
				t.Fatalf("round %d: no progress", round)
			}
		}
		c.Kill(t)
		c.Up(t)
	}
	stop()
	writers.Wait()
	for _, r := range refs {
		page, err := e.Read(t.Context(), r, store.Query{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		stored := map[string]int64{}
		for _, ev := range page.Events {
			if old := stored[ev.Content]; old != 0 {
				t.Errorf("%s: %s is event %d and %d", r, ev.Content, old, ev.ID)
			}
			stored[ev.Content] = ev.ID
		}
		for _, key := range slices.Sorted(maps.Keys(told[r].ids)) {
			if id := told[r].ids[key]; stored[key] != id {
				t.Errorf("%s: %s was acknowledged as %d and is %d", r, key, id, stored[key])
			}
		}
		if n, err := e.VerifyChain(t.Context(), r); err != nil || n != int64(len(page.Events)) {
			t.Errorf("%s: chain of %d, %v", r, n, err)
		}
		t.Logf("%s: %d acknowledged, %d stored", r, len(told[r].ids), len(stored))
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// push repeats a push under its key until it is acknowledged or ctx ends.
func push(ctx context.Context, t *testing.T, e *Engine, r store.Ref, key string, told *pushed) {
	for end := time.Now().Add(time.Minute); ctx.Err() == nil; {
		ev := message
		ev.Content = key
		out, err := e.Append(ctx, r, []store.NewEvent{ev}, store.AppendOptions{Key: key})
		if err == nil {
			told.put(key, out.IDs[0])
			return
		}
		if ctx.Err() == nil && !errors.Is(err, store.ErrIO) || time.Now().After(end) {
			t.Errorf("push: %v", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond): // the server is not up
		}
	}
}

// A server that came back while nobody wrote is not an error to who writes next,
// however many connections it has taken with it.
func TestServerRestarted(t *testing.T) {
	c := cluster(t, "fsync = off")
	e := open(t, Options{DSN: c.Database(t)})
	var wg sync.WaitGroup
	for range 16 { // as many connections
		wg.Go(func() { _, _ = e.State(t.Context(), "a") })
	}
	wg.Wait()
	c.Kill(t)
	c.Up(t)
	if _, err := e.Append(t.Context(), store.Inbox("a"), []store.NewEvent{message}, store.AppendOptions{}); err != nil {
		t.Error(err)
	}
	if s, err := e.State(t.Context(), "a"); err != nil || s.Head != 1 {
		t.Errorf("head %d, %v", s.Head, err)
	}
	c.Kill(t)
	if _, err := e.State(t.Context(), "a"); !errors.Is(err, store.ErrIO) {
		t.Errorf("without a server: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A server becomes one that only reads, as the first of two does when the other was
// promoted: writes say that it cannot be reached, the probe says why, and when a server
// that writes is in its place the same connections of the engine are made again.
func TestServerOnlyReads(t *testing.T) {
	c := cluster(t, "fsync = off")
	e := open(t, Options{DSN: c.Database(t), Live: anyLease})
	write := func(key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := e.Append(ctx, store.Inbox("a"), []store.NewEvent{message}, store.AppendOptions{Key: key})
		return err
	}
	if err := write("before"); err != nil {
		t.Fatal(err)
	}
	c.OnlyReads(t, true)
	for range 2 { // by a connection that was there, and by a new one
		if err := write("meanwhile"); !errors.Is(err, store.ErrIO) {
			t.Errorf("a server that only reads: %v", err)
		}
		if err := e.Able(t.Context()); err == nil {
			t.Error("a server that only reads is able")
		}
	}
	c.OnlyReads(t, false)
	if err := errors.Join(write("after"), e.Able(t.Context())); err != nil {
		t.Error(err)
	}
}
