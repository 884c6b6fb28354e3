package fairqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/theclaw/agents/services/runner/internal/fairqueue"
)

// line lets waiters come one after the other while all places are taken, gives the
// places back one by one, and answers the order in which they were served.
func line(t *testing.T, size int64, waiters ...string) []string {
	t.Helper()
	var order []string
	synctest.Test(t, func(t *testing.T) {
		p := fairqueue.New(size)
		if !p.TryTake(size) {
			t.Fatal("no place in an empty house")
		}
		var mu sync.Mutex
		for _, w := range waiters {
			key, cost, _ := strings.Cut(w, "/")
			go func() {
				if err := p.Take(t.Context(), key, 1, int64(len(cost))); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, w)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		for range waiters {
			p.Give(1)
			synctest.Wait()
		}
	})
	return order
}

// Deficit round robin: one each round, whoever came first with however many; what
// costs two takes two rounds.
func TestOneEachRound(t *testing.T) {
	got := line(t, 1, "bob/1", "bob/2", "bob/3", "bob/4", "alice/1", "carol/..", "carol/1")
	want := []string{"bob/1", "alice/1", "bob/2", "carol/..", "bob/3", "carol/1", "bob/4"}
	// cost is the number of characters: every one here but carol's first costs one
	if !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
}

// A newcomer waits for one waiter of each other key, however long their queues.
func TestNewcomerWaitsOneRound(t *testing.T) {
	var all []string
	for n := range 200 {
		all = append(all, "flood/"+string(rune('a'+n%26)))
	}
	got := line(t, 1, append(all, "alice/1")...)
	if at := slices.Index(got, "alice/1"); at > 1 {
		t.Errorf("served as number %d behind a flood", at)
	}
}

// Who needs all places gets them: those who come after wait.
func TestAllPlacesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fairqueue.New(3)
		p.TryTake(1)
		var mu sync.Mutex
		var order []string
		take := func(key string, n int64) {
			go func() {
				if err := p.Take(t.Context(), key, n, 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, fmt.Sprint(key, n))
				mu.Unlock()
			}()
			synctest.Wait()
		}
		take("killer", 3)
		take("bob", 1)
		if p.TryTake(1) || len(order) != 0 {
			t.Errorf("somebody passed the one who waits for all: %v", order)
		}
		p.Give(1)
		synctest.Wait()
		p.Give(3)
		synctest.Wait()
		if !slices.Equal(order, []string{"killer3", "bob1"}) {
			t.Errorf("served %v", order)
		}
	})
}

// Who stops waiting leaves no place taken, and those behind get theirs; more places
// are given out at once.
func TestLeaveAndResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fairqueue.New(1)
		p.TryTake(1)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		left, served := make(chan error, 1), make(chan error, 1)
		go func() { left <- p.Take(ctx, "a", 1, 1) }()
		synctest.Wait()
		go func() { served <- p.Take(t.Context(), "b", 1, 1) }()
		synctest.Wait()
		cancel(gone)
		if err := <-left; !errors.Is(err, gone) {
			t.Errorf("left with %v", err)
		}
		p.Resize(2)
		if err := <-served; err != nil {
			t.Error(err)
		}
		p.Give(2)
		if !p.TryTake(2) || p.TryTake(1) || p.Size() != 2 {
			t.Error("places were lost or made")
		}
	})
}
