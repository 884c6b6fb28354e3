package worker_test

import (
	"context"
	"errors"
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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/worker"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type answer func() (*pb.AcquireDueLeaseResponse, error)

// desk answers the calls of a worker from a script: the far end of the wire, where
// faults are. The real registry is in the services' own tests.
type desk struct {
	mu       sync.Mutex
	polls    []*pb.AcquireDueLeaseRequest
	times    []time.Time
	answers  []answer
	acquire  func() (*pb.AcquireLeaseResponse, error)
	acquired int
	asked    []*pb.AcquireLeaseRequest
	renewed  []uint64
	released []uint64
	renewErr error
	runs     []string // to end
}

func (d *desk) AcquireDueLease(ctx context.Context, in *pb.AcquireDueLeaseRequest, _ ...grpc.CallOption) (*pb.AcquireDueLeaseResponse, error) {
	d.mu.Lock()
	d.polls, d.times = append(d.polls, in), append(d.times, time.Now())
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

func (d *desk) AcquireLease(_ context.Context, in *pb.AcquireLeaseRequest, _ ...grpc.CallOption) (*pb.AcquireLeaseResponse, error) {
	d.mu.Lock()
	d.acquired++
	d.asked = append(d.asked, proto.CloneOf(in))
	d.mu.Unlock()
	return d.acquire()
}

func (d *desk) RenewLease(_ context.Context, in *pb.RenewLeaseRequest, _ ...grpc.CallOption) (*pb.RenewLeaseResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewed = append(d.renewed, in.GetToken())
	return &pb.RenewLeaseResponse{Ttl: durationpb.New(lease.DefaultTTL), AbortRunIds: d.runs}, d.renewErr
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

// ids are the request ids of the polls, a repeated one once.
func (d *desk) ids() (out []string) {
	for _, p := range d.polls {
		out = append(out, p.GetRequestId())
	}
	return slices.Compact(out)
}

func grant(token uint64) *pb.Lease {
	return &pb.Lease{Resource: "agent/a1", Token: token, Ttl: durationpb.New(lease.DefaultTTL)}
}

func due(token uint64, fresh bool, threads ...string) answer {
	return func() (*pb.AcquireDueLeaseResponse, error) {
		return &pb.AcquireDueLeaseResponse{Due: []*pb.DueWork{{AgentId: "a1", Fresh: fresh, Lease: grant(token), ThreadIds: threads}}}, nil
	}
}

func after(d time.Duration, a answer) answer {
	return func() (*pb.AcquireDueLeaseResponse, error) {
		time.Sleep(d)
		return a()
	}
}

func away() (*pb.AcquireDueLeaseResponse, error) {
	return nil, fault.New(codes.Unavailable, fault.RegistryUnavailable, "away", "")
}

func empty() (*pb.AcquireDueLeaseResponse, error) { return &pb.AcquireDueLeaseResponse{}, nil }

// job is work that ends when it is closed, takes a while for that, and writes down
// what happens to it.
type job struct {
	s       *site
	keeper  *lease.Keeper
	closed  chan struct{}
	aborted chan struct{}
	closing func()
	aborts  func()
}

func (j *job) Run() error {
	j.s.note("run", j.keeper.Token())
	defer j.s.note("end", j.keeper.Token())
	select {
	case <-j.keeper.Context().Done():
		return context.Cause(j.keeper.Context())
	case <-j.keeper.Yield():
	case <-j.closed:
	}
	select {
	case <-j.keeper.Context().Done():
		return context.Cause(j.keeper.Context())
	case <-j.aborted:
	case <-time.After(j.s.takes):
	}
	return j.keeper.Check()
}

func (j *job) Wake(threads ...string) { j.s.note("wake", threads) }
func (j *job) Close()                 { j.closing() }
func (j *job) Abort()                 { j.aborts() }

// site is a running worker.
type site struct {
	*worker.Worker[*job]
	stop  func()
	takes time.Duration // from Close to the end of the work

	mu  sync.Mutex
	log []string
}

func (s *site) note(what string, of any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprint(what, " ", of))
}

func (s *site) notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// begin runs a worker with room for so many leases until stop is called; its work
// takes a while to end.
func begin(d *desk, room int, takes time.Duration) *site {
	s := &site{takes: takes}
	s.Worker = worker.New(worker.Config{Kind: pb.LeaseKind_LEASE_KIND_RUN, Holder: "h"}, worker.Deps[*job]{
		Leases: d, Logger: slog.New(slog.DiscardHandler),
		Free: func(_ context.Context, held int) int { return room - held },
		Begin: func(_ string, k *lease.Keeper) *job {
			j := &job{s: s, keeper: k, closed: make(chan struct{}), aborted: make(chan struct{})}
			j.closing, j.aborts = sync.OnceFunc(func() { close(j.closed) }), sync.OnceFunc(func() { close(j.aborted) })
			return j
		},
		GiveWay: func(n int) { s.note("waiting", n) },
		EndRuns: func(j *job, runs []string) { j.s.note("end runs", runs) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.note("stopped", s.Run(ctx)) })
	s.stop = func() { cancel(); wg.Wait() }
	return s
}

// A poll without an answer is repeated under its id with growing waits; one that
// was answered gets a new id.
func TestPollIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answers: slices.Repeat([]answer{away}, 12)}
		s := begin(d, 1, 0)
		time.Sleep(41 * time.Second)
		synctest.Wait()
		s.stop()
		if ids := d.ids(); len(ids) != 2 || len(d.polls) != 14 {
			t.Errorf("%d calls under %d ids", len(d.polls), len(ids))
		}
		// The ceilings of 12 waits add up to 15.15 s.
		if took := d.times[12].Sub(d.times[0]); took < time.Second || took > 15150*time.Millisecond {
			t.Errorf("12 repeats in %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a registry that is ending answers nothing at once
		d := &desk{answers: slices.Repeat([]answer{empty}, 12)}
		s := begin(d, 1, 0)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		s.stop()
		if took := d.times[12].Sub(d.times[0]); took < time.Second || len(d.ids()) != len(d.polls) {
			t.Errorf("12 empty answers in %v under %d ids", took, len(d.ids()))
		}
	})
}

// A grant that took long to arrive is renewed before it is trusted; when its lease is
// lost by then it is not given back.
func TestOldGrant(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{answers: []answer{after(20*time.Second, due(7, true))}}
			if lost {
				d.renewErr = fault.New(codes.Aborted, fault.LeaseLost, "lost", "")
			}
			s := begin(d, 1, 0)
			time.Sleep(21 * time.Second)
			synctest.Wait()
			if worked := slices.Contains(s.notes(), "run 7"); worked == lost || d.renewals() != 1 {
				t.Errorf("lost %v: worked %v, renewed %d times", lost, worked, d.renewals())
			}
			s.stop()
			if lost == slices.Contains(d.gone(), 7) {
				t.Errorf("lost %v: released %v", lost, d.gone())
			}
		})
	}
}

// A newer token of the same agent ends the older work before its own begins.
func TestNewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answers: []answer{due(7, true), after(time.Second, due(8, true))}}
		s := begin(d, 10, time.Second)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		s.stop()
		if want := []string{"run 7", "end 7", "run 8", "end 8", "stopped <nil>"}; !slices.Equal(s.notes(), want) {
			t.Errorf("%q", s.notes())
		}
	})
}

// A lost lease ends its work within the trust window, and is not given back.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		most time.Duration
	}{
		"refused":   {fault.New(codes.Aborted, fault.LeaseLost, "lost", ""), lease.DefaultTTL / 3},
		"no answer": {fault.New(codes.Unavailable, fault.RegistryUnavailable, "away", ""), lease.DefaultTTL - lease.Margin(lease.DefaultTTL)},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{answers: []answer{due(7, true)}, renewErr: c.err}
			s := begin(d, 1, 0)
			began := time.Now()
			synctest.Wait()
			term, err := s.Take(t.Context(), "a1")
			if err != nil {
				t.Fatal(err)
			}
			<-term.Done()
			if took := time.Since(began); took != c.most || !slices.Contains(s.notes(), "end 7") {
				t.Errorf("%s: ended after %v: %q", name, took, s.notes())
			}
			s.stop()
			if len(d.gone()) != 0 {
				t.Errorf("%s: released %v", name, d.gone())
			}
		})
	}
}

// One renewal each third of the ttl, one release; runs to end are passed on.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answers: []answer{due(7, true)}, runs: []string{"r1"}}
		s := begin(d, 1, 0)
		time.Sleep(lease.DefaultTTL + time.Second)
		synctest.Wait()
		s.stop()
		want := []string{"run 7", "end runs [r1]", "end runs [r1]", "end runs [r1]", "end 7", "stopped <nil>"}
		if !slices.Equal(s.notes(), want) || d.renewals() != 3 || !slices.Equal(d.gone(), []uint64{7}) {
			t.Errorf("%q, renewed %d times, released %v", s.notes(), d.renewals(), d.gone())
		}
	})
}

// A drain waits for the work for as long as the grace, aborts it then, and gives the
// lease back either way.
func TestDrain(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{answers: []answer{due(7, true)}}
			s := begin(d, 1, takes)
			synctest.Wait()
			began := time.Now()
			s.stop()
			if took := time.Since(began); took != min(takes, worker.DefaultGrace) || !slices.Equal(d.gone(), []uint64{7}) {
				t.Errorf("took %v, released %v", took, d.gone())
			}
			if _, err := s.Take(t.Context(), "a1"); !errors.Is(err, worker.ErrEnding) || d.acquired != 0 {
				t.Errorf("after the drain: %v", err)
			}
		})
	}
}

// Without room a poll asks for no new lease, reports who waits, and ends as soon as
// there is room.
func TestNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answers: []answer{due(7, true), func() (*pb.AcquireDueLeaseResponse, error) {
			time.Sleep(200 * time.Millisecond)
			return &pb.AcquireDueLeaseResponse{Waiting: 3}, nil
		}}}
		s := begin(d, 1, 0)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		term, err := s.Take(t.Context(), "a1")
		if err != nil {
			t.Fatal(err)
		}
		term.Close()
		synctest.Wait()
		p := d.polls
		if len(p) != 4 || p[0].GetMaxNew() != 1 || p[1].GetMaxNew() != 0 || p[1].GetWait().AsDuration() != 250*time.Millisecond ||
			p[3].GetMaxNew() != 1 || p[2].GetRequestId() != p[3].GetRequestId() || p[3].GetWait().AsDuration() != worker.DefaultPoll {
			t.Errorf("polled %v", p)
		}
		if !slices.Contains(s.notes(), "waiting 3") || !slices.Equal(d.gone(), []uint64{7}) {
			t.Errorf("%q, released %v", s.notes(), d.gone())
		}
		s.stop()
	})
}

// Work that the poll reports for a lease that Take is asking for starts with it.
func TestTakeIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answers: []answer{after(time.Second, due(7, false, "t1")), after(time.Second, due(7, false, "t2"))}}
		d.acquire = func() (*pb.AcquireLeaseResponse, error) {
			time.Sleep(1500 * time.Millisecond)
			return &pb.AcquireLeaseResponse{Lease: grant(7)}, nil
		}
		s := begin(d, 1, 0)
		first, err := s.Take(t.Context(), "a1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if again, err := s.Take(t.Context(), "a1"); err != nil || again != first || d.acquired != 1 {
			t.Errorf("taken again: %v, %d calls", err, d.acquired)
		}
		s.stop()
		// The note of the first wake and that of the run are of two goroutines.
		log := slices.Sorted(slices.Values(s.notes()[:2]))
		if !slices.Equal(log, []string{"run 7", "wake [t1]"}) || s.notes()[2] != "wake [t2]" || !slices.Equal(d.gone(), []uint64{7}) {
			t.Errorf("%q, released %v", s.notes(), d.gone())
		}
	})
}

// A lease that this process has, although no term is here yet, is waited for; that of
// another process is its answer.
func TestTakeOfAHeldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answers: []answer{after(time.Second, due(7, true))}}
		holder := "h"
		d.acquire = func() (*pb.AcquireLeaseResponse, error) {
			f := fault.New(codes.FailedPrecondition, fault.LeaseHeld, "held", "")
			f.Meta = map[string]string{"holder": holder}
			return nil, f
		}
		s := begin(d, 1, 0)
		began := time.Now()
		if _, err := s.Take(t.Context(), "a1"); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		holder = "other"
		if _, err := s.Take(t.Context(), "a2"); !fault.Is(err, fault.LeaseHeld) {
			t.Errorf("held by another process: %v", err)
		}
		s.stop()
	})
}
