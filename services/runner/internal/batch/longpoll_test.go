package batch_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// patient is an inbox whose readings wait, as the registry's do.
type patient struct {
	inbox
	news chan struct{}
}

func (p *patient) OpenBatch(ctx context.Context, in *pb.OpenBatchRequest, opts ...grpc.CallOption) (*pb.OpenBatchResponse, error) {
	for until := time.Now().Add(in.GetWait().AsDuration()); time.Now().Before(until); {
		p.mu.Lock()
		there := int64(len(p.threads)) > in.GetAfterId()
		p.mu.Unlock()
		if there {
			break
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-p.news:
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		t.Stop()
	}
	return p.inbox.OpenBatch(ctx, in, opts...)
}

// An idle batch is told of each event by the reading that waits, one call for each,
// and needs no poke; it still ends when nothing came for Keep.
func TestBatchFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &patient{news: make(chan struct{}, 1)}
		in.push("t")
		b := batch.New(batch.Config{AgentID: "a1", Token: 1, Keep: time.Minute}, batch.Deps{
			Inbox: in, Slots: batch.NewSlots(0), Logger: slog.New(slog.DiscardHandler),
			Turn: func(_ context.Context, e *pb.PendingEvent, _ turn.Slot) error {
				in.finish(e.GetEvent().GetId())
				return nil
			},
		})
		done := make(chan error)
		go func() { done <- b.Work(t.Context(), nil) }()
		for n := range 5 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			in.mu.Lock()
			finished, calls := len(in.done), in.calls
			in.mu.Unlock()
			if finished != n+1 || calls > n+1+2 { // two of them ended by their time
				t.Errorf("%d events finished with %d calls, want %d", finished, calls, n+1)
			}
			in.push("t")
			in.news <- struct{}{}
		}
		began := time.Now()
		if err := <-done; err != nil || time.Since(began) < time.Minute || time.Since(began) > 2*time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A poke reads at once, whatever the reading that waits is about.
func TestPokeEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &patient{news: make(chan struct{})} // nobody tells the reading that waits
		b := batch.New(batch.Config{AgentID: "a1", Token: 1, Keep: time.Minute}, batch.Deps{
			Inbox: in, Slots: batch.NewSlots(0), Logger: slog.New(slog.DiscardHandler),
			Turn: func(_ context.Context, e *pb.PendingEvent, _ turn.Slot) error {
				in.finish(e.GetEvent().GetId())
				return nil
			},
		})
		done := make(chan error)
		go func() { done <- b.Work(t.Context(), nil) }()
		time.Sleep(time.Second)
		in.push("t")
		b.Wake()
		synctest.Wait()
		in.mu.Lock()
		if len(in.done) != 1 {
			t.Error("a poke did not read")
		}
		in.mu.Unlock()
		b.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
