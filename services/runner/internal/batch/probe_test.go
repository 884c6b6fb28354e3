package batch_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// After a quarantine one turn at a time tries, and all may once one ended well.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		for n := range 12 {
			in.push(fmt.Sprint("t", n))
		}
		var mu sync.Mutex
		running, most, tries := 0, map[bool]int{}, 0
		b := batch.New(batch.Config{AgentID: "a1", Token: 1, Keep: 10 * time.Second, Probe: true}, batch.Deps{
			Inbox: in, Slots: batch.NewSlots(0), Logger: slog.New(slog.DiscardHandler),
			Turn: func(_ context.Context, e *pb.PendingEvent, _ turn.Slot) error {
				mu.Lock()
				tries++
				well := tries > 3 // the first ones fail
				running++
				probing := len(in.done) == 0
				most[probing] = max(most[probing], running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				running--
				if !well {
					return fmt.Errorf("try %d", tries)
				}
				in.finish(e.GetEvent().GetId())
				return nil
			},
		})
		if err := b.Work(t.Context(), nil); err != nil || len(in.done) != 12 {
			t.Fatalf("%v, done %v", err, in.done)
		}
		if most[true] != 1 || most[false] != 4 {
			t.Errorf("%d at a time while probing, %d after", most[true], most[false])
		}
	})
}

// Share tells an idle batch from one that works, and one that had 32 events or 60 s.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		name         string
		events, done int
		after        time.Duration
		want         batch.Share
	}{
		{"at work", 40, 31, 59 * time.Second, batch.Working},
		{"32 events", 40, 32, time.Second, batch.ShareUsed},
		{"60 s", 40, 1, time.Minute, batch.ShareUsed},
		{"nothing left", 3, 3, time.Second, batch.Idle},
	} {
		synctest.Test(t, func(t *testing.T) {
			in, hold := &inbox{}, make(chan struct{})
			for range c.events {
				in.push("t")
			}
			b := newBatch(in, 8, func(_ context.Context, id int64, _ string, _ turn.Slot) error {
				if int(id) > c.done {
					<-hold
				}
				return nil
			})
			if b.Share() != batch.Working {
				t.Error("given away before it has read its inbox")
			}
			done := make(chan error)
			go func() { done <- b.Work(t.Context(), nil) }()
			time.Sleep(c.after)
			synctest.Wait()
			if got := b.Share(); got != c.want {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
			close(hold)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
