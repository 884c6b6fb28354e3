package db

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/theclaw/agents/internal/store"
)

// The first has the connection, the others come in their order, some at a time, but for
// one that left; then it is free again.
func TestQueueOrder(t *testing.T) {
	var q queue[int]
	told := 0
	enter := func(who int) bool {
		t.Helper()
		free, err := q.enter(who, func() { told++ })
		if err != nil {
			t.Fatal(err)
		}
		return free
	}
	if !enter(1) || enter(2) || enter(3) || enter(4) || enter(5) || told != 4 || q.length() != 4 {
		t.Fatalf("told %d, %d wait", told, q.length())
	}
	if !q.leave(3) || q.leave(3) || q.leave(1) {
		t.Error("only who waits can leave, once")
	}
	batch := q.next(nil, 2)
	if !slices.Equal(batch, []int{2, 4}) {
		t.Errorf("%v, want 2 and 4", batch)
	}
	if batch = q.next(batch, 2); !slices.Equal(batch, []int{5}) || q.leave(5) {
		t.Errorf("%v, want 5 alone", batch)
	}
	if batch = q.next(batch, 2); len(batch) != 0 || !enter(6) {
		t.Errorf("%v, want it free", batch)
	}
}

// close waits for the holder and the waiters, and refuses the others.
func TestQueueClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue[int]
		for who := range 2 {
			if _, err := q.enter(who, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		var closed atomic.Int32
		for range 2 {
			go func() { q.close(); closed.Add(1) }()
			synctest.Wait()
		}
		if _, err := q.enter(3, func() {}); !errors.Is(err, store.ErrClosed) || !q.isClosed() {
			t.Errorf("came in: %v", err)
		}
		if n := len(q.next(nil, 9)); n != 1 || closed.Load() != 0 {
			t.Errorf("%d waited, %d closed before", n, closed.Load())
		}
		q.next(nil, 9)
		synctest.Wait()
		if closed.Load() != 2 {
			t.Errorf("%d closed, want both", closed.Load())
		}
		q.close()
	})
}
