package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// What another thread knows is asked for while no thread is held: one connection is
// enough for a batch under a changed mode, and no two batches can wait in a circle.
func TestClaimedIsAskedOutside(t *testing.T) {
	e := open(t, Options{DSN: cluster(t, "fsync = off").Database(t) + "&pool_max_conns=1", Live: anyLease})
	f, talk := store.Fence{Resource: "agent/a", Token: 1}, store.Ref{Agent: "a", Thread: "threads/m1"}
	if _, err := e.Append(t.Context(), store.Inbox("a"), []store.NewEvent{message, message, message}, store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	asked := 0
	batch := func(mode string) store.Batch {
		t.Helper()
		b, err := e.OpenBatch(t.Context(), "a", f, store.OpenBatch{
			Limit: 10, Mode: mode,
			Route: func(_ thread.Event, mode string) (string, error) { return "threads/" + mode, nil },
			Claimed: func(ctx context.Context, _ thread.Event, key, _ string) (bool, error) {
				asked++
				return e.Claimed(ctx, talk, key)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := batch("m1").Events[0]
	if _, err := e.Ensure(t.Context(), talk, "tuple"); err != nil {
		t.Fatal(err)
	}
	if b, err := e.Begin(t.Context(), talk, f, store.Begin{Event: first.Event, Key: first.Key}); err != nil || b.Outcome != store.BeginGo {
		t.Fatalf("begin: %+v, %v", b, err)
	}
	for i, p := range batch("m2").Events {
		if want := []string{"threads/m1", "threads/m2", "threads/m2"}[i]; p.Thread != want {
			t.Errorf("event %d goes to %s, want %s", p.Event.ID, p.Thread, want)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// After a stop was answered nothing is begun, whichever registry is asked.
func TestStopped(t *testing.T) {
	e := open(t, Options{DSN: cluster(t, "fsync = off").Database(t), Live: anyLease})
	f, talk := store.Fence{Resource: "agent/a", Token: 1}, store.Ref{Agent: "a", Thread: "threads/x"}
	if _, err := e.Append(t.Context(), store.Inbox("a"), []store.NewEvent{message}, store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Ensure(t.Context(), talk, "tuple"); err != nil {
		t.Fatal(err)
	}
	o := store.OpenBatch{Limit: 10, Mode: "m", IfStarted: true, Route: func(thread.Event, string) (string, error) { return talk.Thread, nil }}
	for _, start := range []bool{false, true, false} {
		if _, err := e.SetStarted(t.Context(), "a", start, "agent run a"); err != nil {
			t.Fatal(err)
		}
		b, err := e.OpenBatch(t.Context(), "a", f, o)
		if err != nil || (len(b.Events) == 1) != start || b.Head != 1 || (b.Scanned == 1) != start {
			t.Errorf("started %v: %+v, %v", start, b, err)
		}
		_, err = e.Begin(t.Context(), talk, f, store.Begin{Event: thread.Event{ID: 1, Type: thread.TypeMessage}, Key: "k", IfStarted: true, Alone: true})
		if stopped := errors.Is(err, store.ErrStopped); stopped == start || !stopped && err != nil {
			t.Errorf("started %v: begin: %v", start, err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
