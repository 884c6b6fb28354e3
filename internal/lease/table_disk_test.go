package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A failed save grants nothing, burns its token, and keeps the displaced term
// for Reap.
func TestSaveFails(t *testing.T) {
	for _, torn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ledger := newLedger()
			table := newTable(t, ledger, nil)
			old := mustAcquire(t, table, ask("h1", "r1")).Token
			time.Sleep(DefaultTTL)
			ledger.hook, ledger.torn = func(Record) error { return errDisk }, torn
			if _, err := table.Acquire(t.Context(), ask("h2", "r2")); !errors.Is(err, errDisk) {
				t.Fatal(err)
			}
			if err := table.Check("agent/a", old+1); !errors.Is(err, ErrLost) {
				t.Errorf("a term was granted without disk: %v", err)
			}
			ledger.hook = nil
			if got := table.Reap(t.Context()); len(got) != 1 {
				t.Errorf("reaped %v, want the displaced term", got)
			}
			if r := mustAcquire(t, table, ask("h2", "r3")); r.Token != old+2 {
				t.Errorf("token %d, want %d", r.Token, old+2)
			}

			ledger.hook = func(Record) error { return errDisk }
			if err := table.Release(t.Context(), "agent/a", old+2); !errors.Is(err, errDisk) {
				t.Errorf("release: %v", err)
			}
			if _, live := table.Get("agent/a"); live {
				t.Error("a release whose save failed has not freed the resource")
			}
		})
	}
}

// Grants of different resources save at the same time, and nothing else waits
// for a save. A Table that held one lock over Save would hang here, which
// synctest reports.
func TestNoSharedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger()
		table := newTable(t, ledger, nil)
		old := mustAcquire(t, table, ask("h1", "r1")).Token

		var both sync.WaitGroup
		both.Add(2)
		var done sync.WaitGroup
		ledger.hook = func(Record) error { both.Done(); both.Wait(); return nil }
		for _, res := range []string{"agent/b", "agent/c"} {
			done.Go(func() {
				if _, err := table.Acquire(t.Context(), AcquireRequest{Resource: res, Holder: "h1", RequestID: res}); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()

		stuck := make(chan struct{})
		ledger.hook = func(Record) error { <-stuck; return nil }
		time.Sleep(DefaultTTL - 1)
		done.Go(func() {
			if _, err := table.Acquire(t.Context(), AcquireRequest{Resource: "agent/d", Holder: "h1", RequestID: "d"}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, err := table.Renew("agent/a", "h1", old); err != nil {
			t.Error(err)
		}
		if err := table.Check("agent/d", 1); !errors.Is(err, ErrLost) {
			t.Errorf("live before its token is on disk: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := table.Acquire(ctx, AcquireRequest{Resource: "agent/d", Holder: "h2", RequestID: "e"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for another grant: %v", err)
		}
		close(stuck)
		done.Wait()
		if err := table.Check("agent/d", 1); err != nil {
			t.Error(err)
		}
	})
}

// The end of a term is not seen before it is on disk: a registry that is killed
// in between could otherwise take back what somebody has seen.
func TestReleaseIsSeenOnceOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger()
		table := newTable(t, ledger, nil)
		old := mustAcquire(t, table, ask("h1", "r1")).Token
		turn := table.entries["agent/a"].turn
		turn <- struct{}{} // somebody saves

		var wg sync.WaitGroup
		wg.Go(func() {
			if err := table.Release(t.Context(), "agent/a", old); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, err := table.Renew("agent/a", "h1", old); err != nil {
			t.Errorf("ended before it is on disk: %v", err)
		}
		<-turn
		wg.Wait()
		if _, err := table.Renew("agent/a", "h1", old); !errors.Is(err, ErrLost) {
			t.Errorf("renewed after its end: %v", err)
		}
		if next := mustAcquire(t, table, ask("h2", "r2")).Token; next != old+1 {
			t.Errorf("token %d after %d", next, old)
		}
		if r := ledger.rows["agent/a"]; r.Token != old+1 || r.Released {
			t.Errorf("on disk: %v", r)
		}
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger()
		table := newTable(t, ledger, nil)
		for _, h := range []string{"live", "dead", "idle", "gone"} {
			mustAcquire(t, table, AcquireRequest{Resource: "agent/" + h, Holder: h, RequestID: h, TTL: time.Second})
		}
		if err := table.Release(t.Context(), "agent/gone", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Millisecond)

		table = newTable(t, ledger, func(h string) bool { return h == "dead" })
		time.Sleep(900 * time.Millisecond) // past the old deadline, before the new
		r, err := table.Renew("agent/live", "live", 1)
		if err != nil || r.Token != 1 {
			t.Errorf("a live holder lost its term over a restart: %v %v", r, err)
		}
		var e *HeldError
		if _, err := table.Acquire(t.Context(), AcquireRequest{Resource: "agent/idle", Holder: "x", RequestID: "x"}); !errors.As(err, &e) {
			t.Errorf("a loaded term is not live: %v", err)
		}
		for _, res := range []string{"agent/dead", "agent/gone"} {
			if r := mustAcquire(t, table, AcquireRequest{Resource: res, Holder: "x", RequestID: "x"}); r.Token != 2 {
				t.Errorf("%s: token %d, want 2", res, r.Token)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if _, err := table.Renew("agent/idle", "idle", 1); !errors.Is(err, ErrLost) {
			t.Errorf("one ttl after the restart: %v", err)
		}
	})
}

func TestReap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := map[string]bool{}
		ledger := newLedger()
		table := newTable(t, ledger, func(h string) bool { return dead[h] })
		if _, ok := table.NextExpiry(); ok {
			t.Error("an empty table has an expiry")
		}
		start := time.Now()
		for res, h := range map[string]string{"agent/1": "killed", "deliver/1": "killed", "agent/2": "slow", "agent/3": "well"} {
			ttl := time.Second
			if h == "well" {
				ttl = time.Minute
			}
			mustAcquire(t, table, AcquireRequest{Resource: res, Holder: h, RequestID: res, TTL: ttl})
		}
		if at, ok := table.NextExpiry(); !ok || !at.Equal(start.Add(time.Second)) {
			t.Errorf("next expiry %v", at)
		}
		if got := table.Reap(t.Context()); len(got) != 0 {
			t.Errorf("reaped the living: %v", got)
		}
		dead["killed"] = true
		if got := resources(table.Reap(t.Context())); !slices.Equal(got, []string{"agent/1", "deliver/1"}) {
			t.Errorf("reaped %q at a death", got)
		}
		if err := table.Check("agent/1", 1); !errors.Is(err, ErrLost) {
			t.Errorf("a dead holder's token passes: %v", err)
		}
		time.Sleep(time.Second)
		if got := resources(table.Reap(t.Context())); !slices.Equal(got, []string{"agent/2"}) {
			t.Errorf("reaped %q at an expiry", got)
		}
		if got := table.Reap(t.Context()); len(got) != 0 {
			t.Errorf("reaped twice: %v", got)
		}
		if !ledger.rows["agent/2"].Released {
			t.Error("the ledger was not told of the expiry")
		}
		if at, _ := table.NextExpiry(); !at.Equal(start.Add(time.Minute)) {
			t.Errorf("next expiry %v", at)
		}
	})
}

func resources(records []Record) []string {
	var names []string
	for _, r := range records {
		names = append(names, r.Resource)
	}
	return names
}

// A dead holder's lease is free at once, also for one who asks before the Reap.
func TestDeadHolderIsDisplaced(t *testing.T) {
	dead := map[string]bool{}
	table := newTable(t, newLedger(), func(h string) bool { return dead[h] })
	tok := mustAcquire(t, table, ask("h1", "r1")).Token
	dead["h1"] = true
	if r := mustAcquire(t, table, ask("h2", "r2")); r.Token != tok+1 || r.Holder != "h2" {
		t.Errorf("got %v", r)
	}
	if got := table.Reap(t.Context()); len(got) != 0 {
		t.Errorf("a term that was succeeded is due again: %v", got)
	}
}

type brokenLedger struct{ *memLedger }

func (brokenLedger) Load(context.Context) ([]Record, error) { return nil, errDisk }

func TestLoadFails(t *testing.T) {
	if _, err := NewTable(t.Context(), brokenLedger{newLedger()}, nil); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
}
