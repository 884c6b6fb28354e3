package batch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/services/runner/internal/turn"
)

// Work beside the events keeps the lease as long as it needs, and no longer; when
// the batch is stopped it is waited for, and nothing more is begun.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatch(&inbox{}, 4, func(context.Context, int64, string, turn.Slot) error { return nil })
		release, ok := b.Hold()
		if !ok {
			t.Fatal("a new batch is not to be held")
		}
		start, ended := time.Now(), make(chan error, 1)
		go func() { ended <- b.Work(t.Context(), nil) }()
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("the batch ended after %v while it was held: %v", time.Since(start), err)
		default:
		}
		release()
		if err := <-ended; err != nil || time.Since(start) > time.Hour+time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, ok := b.Hold(); ok {
			t.Error("a batch that has ended was held")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBatch(&inbox{}, 4, func(context.Context, int64, string, turn.Slot) error { return nil })
		release, _ := b.Hold()
		ended := make(chan error, 1)
		go func() { ended <- b.Work(t.Context(), nil) }()
		synctest.Wait()
		b.Stop()
		synctest.Wait()
		if _, ok := b.Hold(); ok {
			t.Error("a batch that ends was held")
		}
		select {
		case <-ended:
			t.Fatal("the batch ended under work that holds it")
		default:
		}
		release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
