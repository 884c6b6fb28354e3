package batch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// Background work keeps the lease as long as it needs, and no longer; when
// the batch is stopped it is waited for, and nothing more is begun.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatch(&inbox{}, 4, func(context.Context, int64, string, turn.Slot) error { return nil })
		end, ok := b.BeginBackground()
		if !ok {
			t.Fatal("a new batch takes no background work")
		}
		start, ended := time.Now(), make(chan error, 1)
		go func() { ended <- b.Work(t.Context(), nil) }()
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("the batch ended after %v during background work: %v", time.Since(start), err)
		default:
		}
		end()
		if err := <-ended; err != nil || time.Since(start) > time.Hour+time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, ok := b.BeginBackground(); ok {
			t.Error("an ended batch took background work")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBatch(&inbox{}, 4, func(context.Context, int64, string, turn.Slot) error { return nil })
		end, _ := b.BeginBackground()
		ended := make(chan error, 1)
		go func() { ended <- b.Work(t.Context(), nil) }()
		synctest.Wait()
		b.Stop()
		synctest.Wait()
		if _, ok := b.BeginBackground(); ok {
			t.Error("an ending batch took background work")
		}
		select {
		case <-ended:
			t.Fatal("the batch ended during background work")
		default:
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Work that holds the batch does not make room for other agents, however long it takes, and learns
// that the batch is to end all the same.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatch(&inbox{}, 4, func(context.Context, int64, string, turn.Slot) error { return nil })
		stop, end, ok := b.Hold()
		if !ok {
			t.Fatal("a new batch is not held")
		}
		ended := make(chan error, 1)
		go func() { ended <- b.Work(t.Context(), nil) }()
		time.Sleep(time.Hour)
		if got := b.Share(); got != batch.Working {
			t.Errorf("its share is %v", got)
		}
		select {
		case <-stop:
			t.Error("it is to end")
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		default:
		}
		b.Stop()
		<-stop
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, _, ok := b.Hold(); ok {
			t.Error("an ended batch is held")
		}
	})
}
