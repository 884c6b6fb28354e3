package batch_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// The work that follows a turn holds up no turn of its conversation or of its agent, even
// where there is one place for turns; there is one piece of it for each conversation, and
// it keeps the idle batch from ending.
func TestFollowingHoldsUpNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		in.push("t", "t", "u")
		release, reserved := make(chan struct{}), map[int64]bool{} // by turn: that of u may come between the two of t
		b := newBatch(in, 1, func(ctx context.Context, id int64, thread string, s turn.Slot) error {
			place := s.Background()
			reserved[id] = place != nil
			if place != nil && id == 3 {
				place.Cancel()
				place.Cancel()
			} else if place != nil {
				place.Begin(ctx, func(context.Context, func()) { <-release })
				place.Cancel() // it has begun
			}
			return nil
		})
		start, ended := time.Now(), make(chan error, 1)
		go func() { ended <- b.Work(t.Context(), nil) }()
		time.Sleep(time.Hour)
		if want := map[int64]bool{1: true, 2: false, 3: true}; !maps.Equal(reserved, want) {
			t.Errorf("turns that reserved a place: %v, want %v", reserved, want)
		}
		if b.Share() == batch.Idle {
			t.Error("the batch is idle")
		}
		select {
		case err := <-ended:
			t.Fatalf("the batch ended: %v", err)
		default:
		}
		close(release)
		if err := <-ended; err != nil || time.Since(start) > time.Hour+time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A batch that is to end ends what follows its turns, whatever ends it.
func TestFollowingEndsWithTheBatch(t *testing.T) {
	for name, end := range map[string]func(b *batch.Batch, yield chan struct{}, cancel context.CancelCauseFunc){
		"stop":  func(b *batch.Batch, _ chan struct{}, _ context.CancelCauseFunc) { b.Stop() },
		"yield": func(_ *batch.Batch, yield chan struct{}, _ context.CancelCauseFunc) { close(yield) },
		"lost":  func(_ *batch.Batch, _ chan struct{}, cancel context.CancelCauseFunc) { cancel(turn.ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := &inbox{}
				in.push("t")
				var cause error
				b := newBatch(in, 4, func(ctx context.Context, _ int64, _ string, s turn.Slot) error {
					s.Background().Begin(ctx, func(ctx context.Context, _ func()) { <-ctx.Done(); cause = context.Cause(ctx) })
					return nil
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				yield, ended := make(chan struct{}), make(chan error, 1)
				go func() { ended <- b.Work(ctx, yield) }()
				synctest.Wait()
				start := time.Now()
				end(b, yield, cancel)
				err := <-ended
				if lost := name == "lost"; errors.Is(err, turn.ErrLost) != lost || errors.Is(cause, turn.ErrLost) != lost || !lost && !errors.Is(cause, turn.ErrYield) {
					t.Errorf("the batch ended with %v, the work with %v", err, cause)
				}
				if time.Since(start) != 0 {
					t.Errorf("it took %v", time.Since(start))
				}
			})
		})
	}
}

// A turn that needs the work that follows an earlier one waits for it while it runs, for so
// long and no longer; work that waits for its place is given up, and the turn does it.
func TestAwaitBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, places = 20, 16
		in := &inbox{}
		for n := range many {
			in.push(string(rune('a' + n)))
		}
		var mu sync.Mutex
		runs, awaited, release := map[string]bool{}, map[string]bool{}, make(chan struct{})
		b := newBatch(in, 64, func(ctx context.Context, id int64, thread string, s turn.Slot) error {
			if id > many {
				over := s.AwaitBackground(ctx, time.Minute, false)
				mu.Lock()
				defer mu.Unlock()
				awaited[thread] = over
				return nil
			}
			s.Background().Begin(ctx, func(context.Context, func()) {
				mu.Lock()
				runs[thread] = true
				mu.Unlock()
				<-release
			})
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- b.Work(t.Context(), nil) }()
		synctest.Wait()
		if len(runs) != places {
			t.Fatalf("%d run at a time", len(runs))
		}
		first := slices.Min(slices.Collect(maps.Keys(runs)))
		for n := range many { // one that runs, and those that do not
			if thread := string(rune('a' + n)); !runs[thread] || thread == first {
				in.push(thread)
			}
		}
		b.Wake()
		synctest.Wait()
		if len(awaited) != many-places {
			t.Errorf("%d gave up what had not begun", len(awaited))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if over, found := awaited[first]; len(awaited) != many-places+1 || !found || over {
			t.Errorf("went on: %v", awaited)
		}
		close(release)
		if err := <-ended; err != nil || len(runs) != places {
			t.Errorf("%v, %d ran", err, len(runs))
		}
	})
}

// A turn may go on when what it waits for is done, though the work is not over.
func TestReadyBeforeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		in.push("t", "t")
		var waited []time.Duration
		var start time.Time
		b := newBatch(in, 4, func(ctx context.Context, id int64, _ string, s turn.Slot) error {
			if id == 1 {
				runs := make(chan struct{})
				defer func() { <-runs }()
				start = time.Now()
				s.Background().Begin(ctx, func(_ context.Context, ready func()) {
					close(runs)
					time.Sleep(time.Second)
					ready()
					ready()
					time.Sleep(time.Second)
				})
				return nil
			}
			for _, over := range []bool{false, false, true, true} {
				if !s.AwaitBackground(ctx, time.Minute, over) {
					t.Error("it does not end")
				}
				waited = append(waited, time.Since(start))
			}
			return nil
		})
		if err := b.Work(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{time.Second, time.Second, 2 * time.Second, 2 * time.Second}; !slices.Equal(waited, want) {
			t.Errorf("waited %v, want %v", waited, want)
		}
	})
}

// A turn that must be alone waits for what follows other turns.
func TestAloneWaitsForFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		in.push("a", "b")
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		slots := batch.NewSlots(4)
		aloneWaits := make(chan struct{})
		b := batch.New(batch.Config{AgentID: "a1", Token: 1, Keep: 10 * time.Second}, batch.Deps{
			Inbox: in, Slots: slots, Logger: slog.New(slog.DiscardHandler),
			Turn: func(ctx context.Context, e *pb.PendingEvent, s turn.Slot) error {
				defer in.finish(e.GetEvent().GetId())
				switch e.GetThreadId() {
				case "a":
					s.Background().Begin(ctx, func(context.Context, func()) { note("a begins"); <-aloneWaits; time.Sleep(time.Minute); note("a ends") })
				case "b":
					time.Sleep(time.Second)
					close(aloneWaits)
					if err := s.Alone(ctx); err != nil {
						return err
					}
					note("alone begins")
					time.Sleep(time.Minute)
					note("alone ends")
				}
				return nil
			},
		})
		if err := b.Work(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if want := []string{"a begins", "a ends", "alone begins", "alone ends"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if slots.Background() != 0 {
			t.Errorf("%d pieces of work are left", slots.Background())
		}
	})
}
