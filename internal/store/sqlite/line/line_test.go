package line_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/line"
)

// The first has the connection, the others come in their order, some at a time, but for
// one that left; then it is free again.
func TestOrder(t *testing.T) {
	var l line.Line[int]
	told := 0
	enter := func(who int) bool {
		t.Helper()
		free, err := l.Enter(who, func() { told++ })
		if err != nil {
			t.Fatal(err)
		}
		return free
	}
	if !enter(1) || enter(2) || enter(3) || enter(4) || enter(5) || told != 4 || l.Waiting() != 4 {
		t.Fatalf("told %d, %d wait", told, l.Waiting())
	}
	if !l.Leave(3) || l.Leave(3) || l.Leave(1) {
		t.Error("only who waits can leave, once")
	}
	batch := l.Next(nil, 2)
	if !slices.Equal(batch, []int{2, 4}) {
		t.Errorf("%v, want 2 and 4", batch)
	}
	if batch = l.Next(batch, 2); !slices.Equal(batch, []int{5}) || l.Leave(5) {
		t.Errorf("%v, want 5 alone", batch)
	}
	if batch = l.Next(batch, 2); len(batch) != 0 || !enter(6) {
		t.Errorf("%v, want it free", batch)
	}
}

// Close waits for who works and who waits, and refuses the others.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line.Line[int]
		for who := range 2 {
			if _, err := l.Enter(who, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		var closed atomic.Int32
		for range 2 {
			go func() { l.Close(); closed.Add(1) }()
			synctest.Wait()
		}
		if _, err := l.Enter(3, func() {}); !errors.Is(err, store.ErrClosed) || !l.Closed() {
			t.Errorf("came in: %v", err)
		}
		if n := len(l.Next(nil, 9)); n != 1 || closed.Load() != 0 {
			t.Errorf("%d waited, %d closed before", n, closed.Load())
		}
		l.Next(nil, 9)
		synctest.Wait()
		if closed.Load() != 2 {
			t.Errorf("%d closed, want both", closed.Load())
		}
		l.Close()
	})
}
