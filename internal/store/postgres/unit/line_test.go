package unit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// Few at a time write a thread, each thread has its own line, and who gives up does not
// hold up those behind. Nothing is left behind.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		a, b := store.Inbox("a"), store.Inbox("b")
		var inside atomic.Int64
		var leave [abreast]func()
		for i := range leave {
			var err error
			if leave[i], err = l.enter(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
		other, err := l.enter(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		other()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.enter(ctx, a); !errors.Is(err, context.Canceled) {
				t.Errorf("given up: %v", err)
			}
		})
		for range 10 {
			wg.Go(func() {
				leave, err := l.enter(t.Context(), a)
				if err != nil {
					t.Error(err)
					return
				}
				inside.Add(1)
				time.Sleep(time.Second) // in the bubble
				inside.Add(-1)
				leave()
			})
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		for _, leave := range leave {
			leave()
		}
		for range 10 / abreast {
			synctest.Wait()
			if n := inside.Load(); n != abreast {
				t.Errorf("%d write at once", n)
			}
			time.Sleep(time.Second) // in the bubble
		}
		wg.Wait()
		if len(l.threads) != 0 {
			t.Errorf("%d lines are left", len(l.threads))
		}
	})
}
