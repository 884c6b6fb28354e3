package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// A yield and a stop let running turns finish; what waits is put off.
func TestYieldAndStop(t *testing.T) {
	for _, how := range []string{"yield", "stop"} {
		synctest.Test(t, func(t *testing.T) {
			in := &inbox{}
			in.push("run", "run", "wait")
			b := newBatch(in, 8, func(ctx context.Context, id int64, _ string, s turn.Slot) error {
				if id == 3 {
					return s.Pause(ctx, time.Hour, nil)
				}
				time.Sleep(time.Minute)
				return nil
			})
			yield := make(chan struct{})
			done := make(chan error)
			start := time.Now()
			go func() { done <- b.Work(t.Context(), yield) }()
			synctest.Wait()
			if how == "yield" {
				close(yield)
			} else {
				b.Stop()
			}
			if err := <-done; err != nil || time.Since(start) != time.Minute {
				t.Errorf("%s: %v after %v", how, err, time.Since(start))
			}
			if !in.done[1] || in.done[2] || in.done[3] {
				t.Errorf("%s: done %v", how, in.done)
			}
			if _, err := b.WaitTo(t.Context(), 3); !errors.Is(err, batch.ErrEnded) {
				t.Errorf("join: %v", err)
			}
		})
	}
}

// A lost lease ends every turn at once.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		in.push("a", "b", "c")
		b := newBatch(in, 8, func(ctx context.Context, id int64, _ string, _ turn.Slot) error {
			if id == 2 {
				time.Sleep(time.Second)
				return fmt.Errorf("%w: told", turn.ErrLost)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		start := time.Now()
		if err := b.Work(t.Context(), nil); !errors.Is(err, turn.ErrLost) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// Failures of ours are waited out: the inbox, and one thread's turn.
func TestOurFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{fail: fault.New(codes.Unavailable, fault.RegistryUnavailable, "away", "")}
		in.push("a", "b")
		tries := 0
		b := newBatch(in, 8, func(_ context.Context, id int64, _ string, _ turn.Slot) error {
			if id == 1 {
				if tries++; tries < 4 {
					return errors.New("disk")
				}
			}
			return nil
		})
		start := time.Now()
		if err := b.Work(t.Context(), nil); err != nil || tries != 4 || !in.done[1] || !in.done[2] {
			t.Errorf("%v, %d tries, %v", err, tries, in.done)
		}
		if time.Since(start) > 13*time.Second {
			t.Errorf("took %v", time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // agentctl stop takes effect within one event
		in := &inbox{}
		in.push("a", "a")
		b := newBatch(in, 8, func(context.Context, int64, string, turn.Slot) error {
			return fault.New(codes.FailedPrecondition, fault.AgentStopped, "stopped", "")
		})
		start := time.Now()
		if err := b.Work(t.Context(), nil); err != nil || len(in.done) != 0 || time.Since(start) != 0 {
			t.Errorf("%v, done %v after %v", err, in.done, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // another event under the id: read again
		in := &inbox{}
		in.push("a", "b", "b")
		stale := true
		b := newBatch(in, 8, func(_ context.Context, id int64, _ string, _ turn.Slot) error {
			if id == 2 && stale {
				stale = false
				return turn.ErrStale
			}
			return nil
		})
		if err := b.Work(t.Context(), nil); err != nil || len(in.done) != 3 || !slices.Contains(in.after, 1) {
			t.Errorf("%v, done %v, read after %v", err, in.done, in.after)
		}
	})
}

// A turn that must be alone waits for all, and all wait for it.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		in.push("a", "killer", "b", "c")
		var mu sync.Mutex
		running, alone := 0, false
		b := newBatch(in, 4, func(ctx context.Context, id int64, _ string, s turn.Slot) error {
			if id == 2 {
				if err := s.Alone(ctx); err != nil {
					return err
				}
			}
			mu.Lock()
			running++
			if id == 2 && running > 1 || id != 2 && alone {
				t.Error("not alone")
			}
			alone = id == 2
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			if id == 2 {
				alone = false
			}
			mu.Unlock()
			return nil
		})
		if err := b.Work(t.Context(), nil); err != nil || len(in.done) != 4 {
			t.Errorf("%v, %v", err, in.done)
		}
	})
}
