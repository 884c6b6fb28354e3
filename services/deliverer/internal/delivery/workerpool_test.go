package delivery

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// TestFirstComeFirstServed: no more than the places run, in the order they came.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWorkerPool(2)
		gate, began := make(chan struct{}), make(chan int, 10)
		for i := range 5 {
			p.run(func() { began <- i; <-gate })
		}
		synctest.Wait()
		if len(began) != 2 || p.Active() != 5 {
			t.Fatalf("%d run, %d active", len(began), p.Active())
		}
		free := make(chan int, 1)
		go func() { free <- p.Free(t.Context()) }()
		for range 3 {
			gate <- struct{}{}
			synctest.Wait()
		}
		if len(began) != 5 || len(free) != 0 {
			t.Fatalf("%d began, free told early: %d", len(began), len(free))
		}
		gate <- struct{}{}
		if n := <-free; n != 1 {
			t.Errorf("%d free, want 1", n)
		}
		gate <- struct{}{}
		p.Wait()
		close(began)
		var order []int
		for i := range began {
			order = append(order, i)
		}
		slices.Sort(order[:2]) // these two began together
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) || p.Active() != 0 {
			t.Errorf("order %v, %d active", order, p.Active())
		}
	})
}

func TestFreeEndsWithContext(t *testing.T) {
	p := newWorkerPool(1)
	gate := make(chan struct{})
	p.run(func() { <-gate })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n := p.Free(ctx); n != 0 {
		t.Errorf("%d free of a full pool", n)
	}
	close(gate)
	p.Wait()
	if n := p.Free(t.Context()); n != 1 {
		t.Errorf("%d free of an empty pool", n)
	}
}
