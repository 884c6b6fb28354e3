package lease

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNames(t *testing.T) {
	if got := AgentResource("a1"); got != "agent/a1" {
		t.Errorf("AgentResource: %q", got)
	}
	if got := DeliverResource("a1"); got != "deliver/a1" {
		t.Errorf("DeliverResource: %q", got)
	}
	for ttl, want := range map[time.Duration]time.Duration{
		DefaultTTL: 3 * time.Second, time.Second: 200 * time.Millisecond, 100 * time.Millisecond: 50 * time.Millisecond,
	} {
		if got := Margin(ttl); got != want {
			t.Errorf("Margin(%v) = %v, want %v", ttl, got, want)
		}
	}
}

// S0-83, S0-84: one holder at a time, and each term has a higher token.
func TestAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger()
		table := newTable(t, ledger, nil)
		first := mustAcquire(t, table, ask("h1", "r1"))
		want := Record{
			Resource: "agent/a", Token: 1, Holder: "h1", Address: "unix:h1", RequestID: "r1",
			TTL: DefaultTTL, Expires: time.Now().Add(DefaultTTL).Round(0),
		}
		if diff := cmp.Diff(want, first); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want, ledger.rows["agent/a"]); diff != "" {
			t.Error("on disk:", diff)
		}

		time.Sleep(5 * time.Second)
		var e *HeldError
		for _, req := range []AcquireRequest{ask("h2", "r2"), ask("h2", "r1"), ask("h1", "r2")} {
			_, err := table.Acquire(t.Context(), req)
			if !errors.As(err, &e) {
				t.Fatalf("%s/%s: %v, want held", req.Holder, req.RequestID, err)
			}
			if diff := cmp.Diff(&HeldError{"agent/a", "h1", "unix:h1", 10 * time.Second}, e); diff != "" {
				t.Error(diff)
			}
		}

		saves := ledger.count()
		again := mustAcquire(t, table, ask("h1", "r1"))
		if again.Token != 1 || ledger.count() != saves {
			t.Errorf("repeat: token %d, %d saves more", again.Token, ledger.count()-saves)
		}
		time.Sleep(DefaultTTL - 1) // the repeat has moved the deadline
		if err := table.Check("agent/a", 1); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		if err := table.Check("agent/a", 1); !errors.Is(err, ErrLost) {
			t.Errorf("at the deadline: %v", err)
		}
		if r := mustAcquire(t, table, ask("h1", "r1")); r.Token != 2 {
			t.Errorf("expired, same request: token %d, want a new term", r.Token)
		}
		if r := mustAcquire(t, table, AcquireRequest{Resource: "deliver/a", Holder: "h9", RequestID: "x"}); r.Token != 1 {
			t.Errorf("another resource: token %d", r.Token)
		}
		var names []string
		for _, r := range table.List() {
			names = append(names, r.Resource)
		}
		if !slices.Equal(names, []string{"agent/a", "deliver/a"}) {
			t.Errorf("list: %q", names)
		}
	})
}

func TestAcquireRefuses(t *testing.T) {
	table := newTable(t, newLedger(), nil)
	for name, req := range map[string]AcquireRequest{
		"resource": {Holder: "h", RequestID: "r"},
		"holder":   {Resource: "agent/a", RequestID: "r"},
		"request":  {Resource: "agent/a", Holder: "h"},
		"negative": {Resource: "agent/a", Holder: "h", RequestID: "r", TTL: -1},
		"no trust": {Resource: "agent/a", Holder: "h", RequestID: "r", TTL: 50 * time.Millisecond},
		"last":     {Resource: "agent/a", Holder: "h", RequestID: "r", Floor: math.MaxInt64},
	} {
		if r, err := table.Acquire(t.Context(), req); err == nil {
			t.Errorf("%s: granted %v", name, r)
		}
	}
}

// I6: a restored directory's fence lifts the token above an older ledger.
func TestFloor(t *testing.T) {
	table := newTable(t, newLedger(), nil)
	req := ask("h1", "r1")
	req.Floor = 41
	if r := mustAcquire(t, table, req); r.Token != 42 {
		t.Fatalf("token %d, want 42", r.Token)
	}
	if err := table.Release(t.Context(), "agent/a", 42); err != nil {
		t.Fatal(err)
	}
	req = ask("h2", "r2")
	req.Floor = 7
	if r := mustAcquire(t, table, req); r.Token != 43 {
		t.Fatalf("token %d, want 43", r.Token)
	}
}

func TestRenewAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger()
		table := newTable(t, ledger, nil)
		tok := mustAcquire(t, table, ask("h1", "r1")).Token
		for range 10 {
			time.Sleep(DefaultTTL - 1)
			if _, err := table.Renew("agent/a", "h1", tok); err != nil {
				t.Fatal(err)
			}
		}
		if n := ledger.count(); n != 1 {
			t.Errorf("%d saves, want 1: a renewal does not touch the disk", n)
		}
		for name, err := range map[string]error{
			"other token":    second(table.Renew("agent/a", "h1", tok+1)),
			"other holder":   second(table.Renew("agent/a", "h2", tok)),
			"other resource": second(table.Renew("agent/b", "h1", tok)),
			"release other":  table.Release(t.Context(), "agent/a", tok+1),
			"release none":   table.Release(t.Context(), "agent/b", 0),
			"check token":    table.Check("agent/a", tok-1),
		} {
			if !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v, want lost", name, err)
			}
		}
		time.Sleep(DefaultTTL)
		if _, err := table.Renew("agent/a", "h1", tok); !errors.Is(err, ErrLost) {
			t.Errorf("expired: %v", err)
		}

		next := mustAcquire(t, table, ask("h2", "r2")).Token
		if err := table.Release(t.Context(), "agent/a", tok); !errors.Is(err, ErrLost) {
			t.Errorf("late release: %v", err)
		}
		if r, live := table.Get("agent/a"); !live || r.Token != next {
			t.Errorf("after a late release: %v %v", r, live)
		}
		for range 2 {
			if err := table.Release(t.Context(), "agent/a", next); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		if _, live := table.Get("agent/a"); live || table.List() != nil || !ledger.rows["agent/a"].Released {
			t.Error("still there after its release")
		}
		if _, err := table.Renew("agent/a", "h2", next); !errors.Is(err, ErrLost) {
			t.Errorf("renew after release: %v", err)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }

func TestYield(t *testing.T) {
	table := newTable(t, newLedger(), nil)
	if table.RequestYield("agent/a") {
		t.Error("a yield was asked of nobody")
	}
	tok := mustAcquire(t, table, ask("h1", "r1")).Token
	if r, _ := table.Renew("agent/a", "h1", tok); r.YieldRequested {
		t.Error("yield before it was asked for")
	}
	if !table.RequestYield("agent/a") {
		t.Error("nobody to ask")
	}
	for range 2 {
		if r, err := table.Renew("agent/a", "h1", tok); err != nil || !r.YieldRequested {
			t.Errorf("renew: %v %v", r, err)
		}
	}
	if err := table.Release(t.Context(), "agent/a", tok); err != nil {
		t.Fatal(err)
	}
	if r := mustAcquire(t, table, ask("h2", "r2")); r.YieldRequested {
		t.Error("the next term has inherited the yield")
	}
}
