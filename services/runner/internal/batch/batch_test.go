package batch_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inbox is a list of events by the rules of OpenBatch.
type inbox struct {
	mu      sync.Mutex
	threads []string // thread of id 1, 2, ...
	done    map[int64]bool
	calls   int
	after   []int64
	fail    error // answered by the next call
	late    []string
	// sources of the events, all of a session, and what is said about the queue; none: neither.
	sources []string
	queue   *pb.OpenBatchResponse
}

func (i *inbox) push(threads ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.threads = append(i.threads, threads...)
}

func (i *inbox) OpenBatch(_ context.Context, in *pb.OpenBatchRequest, _ ...grpc.CallOption) (*pb.OpenBatchResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls++
	i.after = append(i.after, in.GetAfterId())
	if err := i.fail; err != nil {
		i.fail = nil
		return nil, err
	}
	out := &pb.OpenBatchResponse{HeadId: int64(len(i.threads)), ScannedId: in.GetAfterId(), Concurrency: 4}
	for id := in.GetAfterId() + 1; id <= int64(len(i.threads)); id++ {
		if len(out.GetEvents()) == int(in.GetLimit()) {
			out.More = true
			break
		}
		out.ScannedId = id
		if !i.done[id] {
			out.Events = append(out.Events, &pb.PendingEvent{Event: &pb.Event{Id: id}, Key: fmt.Sprint(id), ThreadId: i.threads[id-1]})
		}
	}
	for _, e := range out.GetEvents() {
		if id := e.GetEvent().GetId(); int(id) <= len(i.sources) {
			e.Event.Source, e.SessionKey = i.sources[id-1], "agent:a1:main"
		}
	}
	out.QueueMode, out.QueueCap, out.QueueDebounce = i.queue.GetQueueMode(), i.queue.GetQueueCap(), i.queue.GetQueueDebounce()
	i.threads, i.late = append(i.threads, i.late...), nil // a push right behind the reading
	return out, nil
}

func (*inbox) WithdrawTurn(context.Context, *pb.WithdrawTurnRequest, ...grpc.CallOption) (*pb.WithdrawTurnResponse, error) {
	return nil, fault.New(codes.FailedPrecondition, fault.TurnBegun, "", "")
}

func (i *inbox) finish(id int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.done == nil {
		i.done = map[int64]bool{}
	}
	i.done[id] = true
}

func newBatch(i *inbox, slots int, do func(ctx context.Context, id int64, thread string, s turn.Slot) error) *batch.Batch {
	return batch.New(batch.Config{AgentID: "a1", Token: 1, Keep: 10 * time.Second}, batch.Deps{
		Inbox: i, Slots: batch.NewSlots(slots), Logger: slog.New(slog.DiscardHandler),
		Turn: func(ctx context.Context, e *pb.PendingEvent, s turn.Slot) error {
			err := do(ctx, e.GetEvent().GetId(), e.GetThreadId(), s)
			if err == nil {
				i.finish(e.GetEvent().GetId())
			}
			return err
		},
	})
}

// I11: serial and in order in a thread, concurrent across threads, at most as
// many at a time as the agent may have (S1-18, S1-19).
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		for n := range 300 {
			in.push(fmt.Sprint("t", n%10))
		}
		var mu sync.Mutex
		order, busy, running, most := map[string][]int64{}, map[string]bool{}, 0, 0
		b := newBatch(in, 512, func(_ context.Context, id int64, thread string, _ turn.Slot) error {
			mu.Lock()
			if busy[thread] {
				t.Errorf("two turns of %s at a time", thread)
			}
			busy[thread] = true
			order[thread] = append(order[thread], id)
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Duration(id%7+1) * time.Millisecond)
			mu.Lock()
			busy[thread] = false
			running--
			mu.Unlock()
			return nil
		})
		start := time.Now()
		if err := b.Work(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		total := 0
		for thread, ids := range order {
			total += len(ids)
			if !slices.IsSorted(ids) {
				t.Errorf("%s was worked on in the order %v", thread, ids)
			}
		}
		if total != 300 || most != 4 {
			t.Errorf("%d turns, %d at a time", total, most)
		}
		if time.Since(start) < 10*time.Second {
			t.Error("the idle lease was not kept")
		}
	})
}

// A thread that waits for its next try holds up no other, not even with all
// places taken; its own later events wait.
func TestWaitingThreadBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		in.push("sick", "sick", "well", "well")
		var mu sync.Mutex
		var order []int64
		b := newBatch(in, 1, func(ctx context.Context, id int64, _ string, s turn.Slot) error {
			if id == 1 {
				if err := s.Pause(ctx, time.Hour, nil); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, id)
			return nil
		})
		if err := b.Work(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(order, []int64{3, 4, 1, 2}) {
			t.Errorf("order %v", order)
		}
	})
}

// At most 1,024 ids beyond the first unfinished one are in hand.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		in.push("stuck")
		for n := range 3000 {
			in.push(fmt.Sprint("t", n%50))
		}
		release := make(chan struct{})
		var mu sync.Mutex
		highest := int64(0)
		b := newBatch(in, 512, func(_ context.Context, id int64, _ string, _ turn.Slot) error {
			if id == 1 {
				<-release
			}
			mu.Lock()
			defer mu.Unlock()
			highest = max(highest, id)
			return nil
		})
		done := make(chan error)
		go func() { done <- b.Work(t.Context(), nil) }()
		synctest.Wait()
		mu.Lock()
		if highest != batch.Window {
			t.Errorf("worked up to %d behind an unfinished 1", highest)
		}
		mu.Unlock()
		close(release)
		if n, err := b.WaitTo(t.Context(), 3001); err != nil || n == 0 {
			t.Errorf("join: %d, %v", n, err)
		}
		if err := <-done; err != nil || highest != 3001 {
			t.Errorf("ended with %v at %d", err, highest)
		}
	})
}

// Lost wake-up: pushes are found by a poke, and one that nobody told of by the
// last look.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{}
		in.push("a")
		in.late = []string{"a"} // with the first reading; nobody pokes
		b := newBatch(in, 8, func(context.Context, int64, string, turn.Slot) error { return nil })
		done := make(chan error)
		go func() { done <- b.Work(t.Context(), nil) }()
		synctest.Wait()
		in.push("b")
		start := time.Now()
		b.Wake()
		if _, err := b.WaitTo(t.Context(), 3); err != nil || time.Since(start) > time.Second {
			t.Errorf("poke: %v after %v", err, time.Since(start))
		}
		in.push("c")
		if err := <-done; err != nil || !in.done[4] {
			t.Errorf("ended with %v, %v", err, in.done)
		}
	})
}
