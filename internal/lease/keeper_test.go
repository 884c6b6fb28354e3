package lease

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// wire is a network between one holder and a real Table. fault, if set, stands
// for a renewal on its way: it may wait, and an error loses the call before the
// table (there) or the answer after it (back).
type wire struct {
	holder string

	mu    sync.Mutex
	table *Table
	there func(context.Context) error
	back  func(context.Context) error
	calls []time.Time
}

// change alters the wire while calls may be on it.
func (w *wire) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *wire) Renew(ctx context.Context, resource string, token uint64) (RenewReply, error) {
	w.mu.Lock()
	w.calls = append(w.calls, time.Now())
	table, there, back := w.table, w.there, w.back
	w.mu.Unlock()
	if there != nil {
		if err := there(ctx); err != nil {
			return RenewReply{}, err
		}
	}
	r, err := table.Renew(resource, w.holder, token)
	if err != nil {
		return RenewReply{}, err
	}
	if back != nil {
		if err := back(ctx); err != nil {
			return RenewReply{}, err
		}
	}
	return RenewReply{TTL: r.TTL, YieldRequested: r.YieldRequested}, nil
}

// silence is a partition: nothing comes back until the caller gives up.
func silence(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// keep acquires agent/a for h1 and keeps it.
func keep(t *testing.T, w *wire, opts Options) *Keeper {
	t.Helper()
	if w.table == nil {
		w.table = newTable(t, newLedger(), nil)
	}
	w.holder = "h1"
	sent := time.Now()
	r := mustAcquire(t, w.table, ask("h1", "r1"))
	return Keep(t.Context(), w, Grant{Resource: r.Resource, Token: r.Token, TTL: r.TTL, Sent: sent}, opts)
}

func TestKeeperRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		start := time.Now()
		k := keep(t, w, Options{})
		time.Sleep(time.Hour)
		if err := k.Check(); err != nil {
			t.Error(err)
		}
		if err := w.table.Check("agent/a", k.Token()); err != nil {
			t.Error(err)
		}
		k.Stop()
		k.Stop()
		if err := k.Check(); !errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) {
			t.Errorf("after Stop: %v", err)
		}
		for i, at := range w.calls {
			if want := start.Add(time.Duration(i+1) * DefaultTTL / 3); !at.Equal(want) {
				t.Fatalf("renewal %d at %v, want every ttl/3", i, at.Sub(start))
			}
		}
		if len(w.calls) < 719 {
			t.Errorf("%d renewals in an hour", len(w.calls))
		}
	})
}

// In a partition the holder stops at valid_until, a margin before the table
// frees the resource, and although the pending call has not returned.
func TestTrustWindowInPartition(t *testing.T) {
	ignoring := make(chan struct{})
	for name, fault := range map[string]func(context.Context) error{
		"silence":    silence,
		"refused":    func(context.Context) error { return status.Error(codes.Unavailable, "refused") },
		"deaf calls": func(context.Context) error { <-ignoring; return errDisk },
	} {
		synctest.Test(t, func(t *testing.T) {
			ignoring = make(chan struct{})
			w := &wire{}
			failures := 0
			start := time.Now()
			k := keep(t, w, Options{OnError: func(error) { failures++ }})
			time.Sleep(DefaultTTL/3 + 1) // one renewal comes through
			w.change(func() { w.there = fault })
			lastSent := start.Add(DefaultTTL / 3)

			<-k.Context().Done()
			if got, want := time.Since(lastSent), DefaultTTL-Margin(DefaultTTL); got != want {
				t.Errorf("%s: trusted for %v after the last renewal, want %v", name, got, want)
			}
			if err := context.Cause(k.Context()); !errors.Is(err, ErrLost) || !errors.Is(k.Check(), ErrLost) {
				t.Errorf("%s: cause %v", name, err)
			}
			if err := w.table.Check("agent/a", k.Token()); err != nil {
				t.Errorf("%s: the table freed it before the holder stopped: %v", name, err)
			}
			close(ignoring)
			k.Stop()
			if name != "deaf calls" && failures < 1 {
				t.Errorf("%s: %d failed renewals reported", name, failures)
			}
		})
	}
}

// The window is counted from the sending, so a slow answer does not stretch it.
func TestSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{back: func(context.Context) error { time.Sleep(4 * time.Second); return nil }}
		start := time.Now()
		k := keep(t, w, Options{})
		defer k.Stop()
		time.Sleep(9*time.Second + 1) // sent at 5 s, answered at 9 s
		w.change(func() { w.there = silence })
		<-k.Context().Done()
		if got, want := time.Since(start), 5*time.Second+DefaultTTL-Margin(DefaultTTL); got != want {
			t.Errorf("trusted until %v, want %v", got, want)
		}
	})
}

// An answer from beyond the window revives nothing.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{back: func(context.Context) error { time.Sleep(20 * time.Second); return nil }}
		k := keep(t, w, Options{})
		time.Sleep(time.Minute)
		if err := k.Check(); !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
		k.Stop()
	})
}

// A process that was stopped past its window goes on inside the renewal, before
// any of its timers has run: neither the answer nor the clock revives the term.
// The goroutines are left out, since a bubble cannot stop them.
func TestStoppedProcessGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := func() *Keeper {
			k := &Keeper{grant: Grant{Resource: "agent/a", Token: 1, TTL: DefaultTTL}, yield: make(chan struct{})}
			k.trust = trustedUntil(time.Now(), DefaultTTL)
			k.ctx, k.cancel = context.WithCancelCause(t.Context())
			return k
		}
		k, asked := stopped(), stopped()
		sent := time.Now().Add(11 * time.Second)
		time.Sleep(13 * time.Second)
		k.extend(sent, DefaultTTL, true)
		if err := k.Check(); !errors.Is(err, ErrLost) {
			t.Errorf("after a late answer: %v", err)
		}
		if err := asked.Check(); !errors.Is(err, ErrLost) {
			t.Errorf("asked after the window: %v", err)
		}
	})
}

// One lost answer, one refused token, one restart of the registry: no lost lease.
func TestKeeperRidesOutErrors(t *testing.T) {
	for name, fault := range map[string]error{
		"unauthenticated": status.Error(codes.Unauthenticated, "token rotated"),
		"unavailable":     status.Error(codes.Unavailable, "restarting"),
		"deadline":        context.DeadlineExceeded,
	} {
		synctest.Test(t, func(t *testing.T) {
			ledger := newLedger()
			w := &wire{table: newTable(t, ledger, nil)}
			k := keep(t, w, Options{})
			w.change(func() { w.there = func(context.Context) error { return fault } })
			time.Sleep(11 * time.Second)
			w.change(func() { w.table, w.there = newTable(t, ledger, nil), nil }) // the registry came back
			time.Sleep(time.Minute)
			if err := k.Check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if r, live := w.table.Get("agent/a"); !live || r.Token != k.Token() {
				t.Errorf("%s: token %d became %d (live %v)", name, k.Token(), r.Token, live)
			}
			k.Stop()
		})
	}
}

func TestKeeperLearnsOfLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		start := time.Now()
		k := keep(t, w, Options{})
		if err := w.table.Release(t.Context(), "agent/a", k.Token()); err != nil {
			t.Fatal(err)
		}
		<-k.Context().Done()
		if got := time.Since(start); got != DefaultTTL/3 {
			t.Errorf("learnt after %v, want the next renewal", got)
		}
		if !errors.Is(context.Cause(k.Context()), ErrLost) {
			t.Errorf("cause %v", context.Cause(k.Context()))
		}
		k.Stop()
		if !errors.Is(k.Check(), ErrLost) {
			t.Error("Stop has changed the cause")
		}
	})
}

func TestKeeperYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		k := keep(t, w, Options{Every: time.Second})
		defer k.Stop()
		time.Sleep(3500 * time.Millisecond)
		select {
		case <-k.Yield():
			t.Error("yield before it was asked for")
		default:
		}
		w.table.RequestYield("agent/a")
		<-k.Yield()
		time.Sleep(10 * time.Second) // asked again each time; the channel closes once
		if err := k.Check(); err != nil {
			t.Errorf("a yield is a request, not a loss: %v", err)
		}
	})
}

func TestKeeperEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t, newLedger(), nil)
		r := mustAcquire(t, table, ask("h1", "r1"))
		reason := errors.New("drained")
		ctx, cancel := context.WithCancelCause(t.Context())
		k := Keep(ctx, &wire{table: table, holder: "h1"}, Grant{Resource: r.Resource, Token: r.Token}, Options{})
		cancel(reason)
		synctest.Wait()
		if err := k.Check(); !errors.Is(err, reason) {
			t.Errorf("got %v", err)
		}
		k.Stop()
	})
}
