package claim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/claim"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk answers the calls of claims from a script: the far end of the wire, where
// faults are. The real registry is in the service's own tests.
type desk struct {
	mu       sync.Mutex
	requests []string // ids of the long polls
	answers  []func() (*pb.AcquireDueLeaseResponse, error)
	renewed  []uint64
	released []uint64
	events   int  // in the inbox
	apart    bool // each in a conversation of its own
	opened   int
}

func (d *desk) AcquireDueLease(ctx context.Context, in *pb.AcquireDueLeaseRequest, _ ...grpc.CallOption) (*pb.AcquireDueLeaseResponse, error) {
	d.mu.Lock()
	d.requests = append(d.requests, in.GetRequestId())
	if len(d.answers) > 0 {
		answer := d.answers[0]
		d.answers = d.answers[1:]
		d.mu.Unlock()
		return answer()
	}
	d.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(in.GetWait().AsDuration()):
		return &pb.AcquireDueLeaseResponse{}, nil
	}
}

func (d *desk) AcquireLease(context.Context, *pb.AcquireLeaseRequest, ...grpc.CallOption) (*pb.AcquireLeaseResponse, error) {
	return nil, fault.New(codes.FailedPrecondition, fault.LeaseHeld, "held", "")
}

func (d *desk) RenewLease(_ context.Context, in *pb.RenewLeaseRequest, _ ...grpc.CallOption) (*pb.RenewLeaseResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewed = append(d.renewed, in.GetToken())
	return &pb.RenewLeaseResponse{Ttl: durationpb.New(15 * time.Second)}, nil
}

func (d *desk) ReleaseLease(_ context.Context, in *pb.ReleaseLeaseRequest, _ ...grpc.CallOption) (*pb.ReleaseLeaseResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = append(d.released, in.GetToken())
	return &pb.ReleaseLeaseResponse{}, nil
}

// gone are the tokens given back so far.
func (d *desk) gone() []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.released)
}

func (d *desk) renewals() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.renewed)
}

func (d *desk) OpenBatch(_ context.Context, in *pb.OpenBatchRequest, _ ...grpc.CallOption) (*pb.OpenBatchResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened++
	out := &pb.OpenBatchResponse{HeadId: int64(d.events), ScannedId: int64(d.events)}
	for id := in.GetAfterId() + 1; id <= int64(d.events); id++ {
		threadID := "t"
		if d.apart {
			threadID = fmt.Sprint("t", id)
		}
		out.Events = append(out.Events, &pb.PendingEvent{Event: &pb.Event{Id: id}, ThreadId: threadID})
	}
	return out, nil
}

func (*desk) WithdrawTurn(context.Context, *pb.WithdrawTurnRequest, ...grpc.CallOption) (*pb.WithdrawTurnResponse, error) {
	return nil, fault.New(codes.FailedPrecondition, fault.TurnBegun, "", "")
}

func due(token uint64, fresh bool) func() (*pb.AcquireDueLeaseResponse, error) {
	return func() (*pb.AcquireDueLeaseResponse, error) {
		return &pb.AcquireDueLeaseResponse{Due: []*pb.DueWork{{
			AgentId: "a1", Fresh: fresh, Lease: &pb.Lease{Resource: "agent/a1", Token: token, Ttl: durationpb.New(15 * time.Second)},
		}}}, nil
	}
}

// start runs a set until the function it returns is called.
func start(d *desk, do claim.Turn) (*claim.Set, func()) {
	s := claim.New(claim.Config{
		Holder: "h", Agents: 10, TTL: 15 * time.Second, Keep: 10 * time.Second, Poll: 25 * time.Second, Grace: 30 * time.Second, Quarantine: 5 * time.Minute,
	}, claim.Deps{Leases: d, Inbox: d, Turn: do, Slots: batch.NewSlots(8), Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx) })
	return s, func() { cancel(); wg.Wait() }
}

func fine(context.Context, claim.Lease, *pb.PendingEvent, turn.Slot) error { return nil }

// The life of a claim: work, keep, give back; work for a lease that nobody here
// has is given back at once.
func TestClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{events: 3, answers: []func() (*pb.AcquireDueLeaseResponse, error){due(7, true), due(5, false)}}
		var fences []string
		_, stop := start(d, func(_ context.Context, l claim.Lease, _ *pb.PendingEvent, _ turn.Slot) error {
			fences = append(fences, l.Fence())
			return l.Check()
		})
		synctest.Wait()
		if !slices.Equal(fences, []string{"agent/a1=7", "agent/a1=7", "agent/a1=7"}) || !slices.Equal(d.gone(), []uint64{5}) {
			t.Errorf("worked under %v, released %v", fences, d.gone())
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if !slices.Equal(d.gone(), []uint64{5, 7}) || d.renewals() == 0 {
			t.Errorf("released %v, renewed %d times", d.gone(), d.renewals())
		}
		stop()
	})
}

// News of an agent that is held here is read at once; of one that is not, the question
// is asked again under its id, for the answer that tells the lease.
func TestNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{events: 1}
		news := func(agents ...string) func() (*pb.AcquireDueLeaseResponse, error) {
			return func() (*pb.AcquireDueLeaseResponse, error) {
				time.Sleep(time.Second)
				d.mu.Lock()
				d.events++
				d.mu.Unlock()
				return &pb.AcquireDueLeaseResponse{News: agents}, nil
			}
		}
		d.answers = []func() (*pb.AcquireDueLeaseResponse, error){due(7, true), news("a1"), news("a1", "a2"), due(5, false)}
		var worked atomic.Int32
		_, stop := start(d, func(context.Context, claim.Lease, *pb.PendingEvent, turn.Slot) error { worked.Add(1); return nil })
		for want := 1; want <= 3; want++ {
			synctest.Wait()
			if n := worked.Load(); int(n) != want {
				t.Errorf("after %d s: %d events of %d", want-1, n, want)
			}
			time.Sleep(time.Second)
		}
		stop()
		if r := d.requests; len(r) != 5 || r[2] != r[3] || len(slices.Compact(slices.Clone(r))) != 4 || d.gone()[0] != 5 {
			t.Errorf("asked as %q, released %v", r, d.gone())
		}
	})
}

// Drain: the grace, then the end; a lease is given back either way.
func TestDrain(t *testing.T) {
	for _, long := range []time.Duration{10 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{events: 1, answers: []func() (*pb.AcquireDueLeaseResponse, error){due(7, true)}}
			finished := false
			s, stop := start(d, func(ctx context.Context, _ claim.Lease, _ *pb.PendingEvent, _ turn.Slot) error {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(long):
					finished = true
					return nil
				}
			})
			synctest.Wait()
			begin := time.Now()
			stop()
			if took := time.Since(begin); took != min(long, 30*time.Second) || finished != (long < 30*time.Second) || !slices.Equal(d.gone(), []uint64{7}) {
				t.Errorf("took %v, finished %v, released %v", took, finished, d.gone())
			}
			if _, err := s.RunTo(t.Context(), "a1", 1, func(context.Context) error { return nil }); !fault.Is(err, fault.ServiceUnavailable) {
				t.Errorf("join after the drain: %v", err)
			}
		})
	}
}

// Three panics in a minute set an agent aside; then one is enough.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{events: 1, answers: []func() (*pb.AcquireDueLeaseResponse, error){due(7, true)}}
		var at []time.Duration
		begin := time.Now()
		s, stop := start(d, func(_ context.Context, l claim.Lease, _ *pb.PendingEvent, _ turn.Slot) error {
			at = append(at, time.Since(begin).Round(time.Minute))
			l.Panicked("k")
			return errors.New("panicked")
		})
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if _, err := s.RunTo(t.Context(), "a1", 1, func(context.Context) error { return nil }); !fault.Is(err, fault.AgentFailed) {
			t.Errorf("join: %v", err)
		}
		if len(d.gone()) != 0 {
			t.Error("the lease went to the next runner to bring down")
		}
		stop()
		want := []time.Duration{0, 0, 0, 5 * time.Minute, 10 * time.Minute}
		if !slices.Equal(at, want) || !slices.Equal(d.gone(), []uint64{7}) {
			t.Errorf("tried at %v, released %v", at, d.gone())
		}
	})
}

// A2: the panics of an event that is dead count no more: its agent is worked on at once, and
// what panics after it begins to count anew.
func TestQuarantineEndsWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{events: 2, apart: true, answers: []func() (*pb.AcquireDueLeaseResponse, error){due(7, true)}}
		var mu sync.Mutex
		begin, panics, good := time.Now(), 0, []time.Duration{}
		_, stop := start(d, func(_ context.Context, l claim.Lease, e *pb.PendingEvent, _ turn.Slot) error {
			mu.Lock()
			defer mu.Unlock()
			if e.GetEvent().GetId() == 2 {
				if panics < 3 {
					return errors.New("not yet")
				}
				good = append(good, time.Since(begin))
				return nil
			}
			switch panics++; {
			case panics < 3:
				l.Panicked("k")
				return errors.New("panicked")
			case panics == 3:
				l.Panicked("k")
				l.Dead("k")
			}
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		if panics < 3 || len(good) == 0 || good[0] > 20*time.Second {
			t.Errorf("%d panics, the other message was worked on after %v", panics, good)
		}
	})
}
