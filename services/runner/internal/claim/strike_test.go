package claim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/claim"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// Only panics count, and only three of them within 60 s: what fails, or is cut off
// by the end of a process or of a lease, sets no agent aside.
func TestOnlyPanicsCount(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		panic bool
		aside bool
	}{
		{"panics half a minute apart", 29 * time.Second, true, true},
		{"panics that are further apart", 31 * time.Second, true, false},
		{"failures, such as of a killed process", time.Second, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{events: 1, answers: []func() (*pb.AcquireDueLeaseResponse, error){due(7, true)}}
			tries, begin := 0, time.Now()
			_, stop := start(d, func(ctx context.Context, l claim.Lease, _ *pb.PendingEvent, s turn.Slot) error {
				if tries++; tries == 4 {
					return nil
				}
				if c.panic {
					l.Panicked("k")
				}
				if err := s.Pause(ctx, c.every, nil); err != nil {
					return err
				}
				return errors.New("again")
			})
			time.Sleep(4 * time.Minute)
			synctest.Wait()
			if aside := tries < 4; aside != c.aside {
				t.Errorf("%s: %d tries in %v", c.name, tries, time.Since(begin))
			}
			stop()
		})
	}
}

// After its quarantine an agent is half open: of ten conversations that wait one is
// tried; it panics, and all of them wait again.
func TestHalfOpenTriesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{events: 10, apart: true, answers: []func() (*pb.AcquireDueLeaseResponse, error){due(7, true)}}
		var mu sync.Mutex
		at := map[time.Duration]int{}
		begin := time.Now()
		_, stop := start(d, func(_ context.Context, l claim.Lease, _ *pb.PendingEvent, _ turn.Slot) error {
			mu.Lock()
			at[time.Since(begin).Truncate(time.Minute)]++
			mu.Unlock()
			l.Panicked("k")
			time.Sleep(time.Millisecond)
			return errors.New("panicked")
		})
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		stop()
		if at[0] < 3 || at[5*time.Minute] != 1 || at[10*time.Minute] != 1 || len(at) != 3 {
			t.Errorf("tried %v", at)
		}
	})
}

// A runner without a free place is told who waits, and gives away what is idle at
// once; nobody else's place.
func TestFullRunnerGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answers: []func() (*pb.AcquireDueLeaseResponse, error){nil}}
		all := &pb.AcquireDueLeaseResponse{}
		for n := range 10 {
			one, _ := due(uint64(n+1), true)()
			one.Due[0].AgentId, one.Due[0].Lease.Resource = fmt.Sprint("a", n), fmt.Sprint("agent/a", n)
			all.Due = append(all.Due, one.GetDue()...)
		}
		d.answers[0] = func() (*pb.AcquireDueLeaseResponse, error) { return all, nil }
		d.answers = append(d.answers, func() (*pb.AcquireDueLeaseResponse, error) {
			time.Sleep(200 * time.Millisecond) // all of them have read their empty inboxes
			return &pb.AcquireDueLeaseResponse{Waiting: 3}, nil
		})
		_, stop := start(d, fine)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if gone := d.gone(); len(gone) != 3 || len(slices.Compact(slices.Sorted(slices.Values(gone)))) != 3 {
			t.Errorf("given away: %v", gone)
		}
		stop()
	})
}
