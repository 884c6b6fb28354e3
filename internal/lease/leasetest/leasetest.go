// Package leasetest checks that an authority on leases keeps the promises of package lease,
// wherever it stores them. The tests run in real time, because an authority may use another
// clock than this process.
package leasetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/authority"
)

// Open returns an empty authority to which the named holders are dead, and what opens
// it again, as another process would.
type Open func(t *testing.T, dead func(holder string) bool) (a authority.Authority, again func() authority.Authority)

const (
	long  = time.Minute
	short = 150 * time.Millisecond
	bound = 30 * time.Second
)

func ask(resource, holder, request string, ttl time.Duration) lease.AcquireRequest {
	return lease.AcquireRequest{Resource: resource, Holder: holder, Address: "at-" + holder, RequestID: request, TTL: ttl}
}

func must(t *testing.T, a authority.Authority, req lease.AcquireRequest) lease.Record {
	t.Helper()
	r, err := a.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func isLost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, lease.ErrLost) {
		t.Errorf("%s: %v, want lost", what, err)
	}
}

// over waits until a term is.
func over(t *testing.T, a authority.Authority, r lease.Record) {
	t.Helper()
	for end := time.Now().Add(bound); ; {
		err := a.Check(t.Context(), r.Resource, r.Token)
		if errors.Is(err, lease.ErrLost) {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%s token %d lives on: %v", r.Resource, r.Token, err)
		}
	}
}

// Run is the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"OneHolder", oneHolder},
		{"Refused", refused},
		{"Floor", floor},
		{"Expiry", expiry},
		{"Release", release},
		{"Yield", yield},
		{"DeadHolder", deadHolder},
		{"Restart", restart},
		{"Race", race},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

// S0-83, S0-84: one holder at a time; the same request is the same term.
func oneHolder(t *testing.T, open Open) {
	a, _ := open(t, nil)
	ctx := t.Context()
	first := must(t, a, ask("agent/a", "h1", "r1", long))
	if first.Token != 1 || first.Holder != "h1" || first.Address != "at-h1" || first.TTL != long || first.RequestID != "r1" {
		t.Errorf("granted %+v", first)
	}
	for _, req := range []lease.AcquireRequest{ask("agent/a", "h2", "r2", long), ask("agent/a", "h2", "r1", long), ask("agent/a", "h1", "r2", long)} {
		_, err := a.Acquire(ctx, req)
		held, ok := errors.AsType[*lease.HeldError](err)
		if !ok || held.Resource != "agent/a" || held.Holder != "h1" || held.Address != "at-h1" || held.RetryAfter <= 0 || held.RetryAfter > long {
			t.Errorf("%s/%s: %v", req.Holder, req.RequestID, err)
		}
	}
	if again := must(t, a, ask("agent/a", "h1", "r1", long)); again.Token != first.Token || again.Expires.Before(first.Expires) {
		t.Errorf("the repeat: %+v", again)
	}
	if err := a.Check(ctx, "agent/a", 1); err != nil {
		t.Error(err)
	}
	isLost(t, "another token", a.Check(ctx, "agent/a", 2))
	isLost(t, "another resource", a.Check(ctx, "agent/b", 1))
	must(t, a, ask("deliver/a", "h9", "x", long))
	must(t, a, ask("agent/b", "h9", "y", long))
	var names []string
	for after := ""; ; {
		page, err := a.List(ctx, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			names, after = append(names, r.Resource), r.Resource
		}
		if len(page) < 2 {
			break
		}
	}
	if !slices.Equal(names, []string{"agent/a", "agent/b", "deliver/a"}) {
		t.Errorf("listed %v", names)
	}
	if r, live, err := a.Get(ctx, "agent/a"); err != nil || !live || r.Holder != "h1" {
		t.Errorf("got %+v %v %v", r, live, err)
	}
	if r, live, err := a.Get(ctx, "agent/none"); err != nil || live || r.Token != 0 {
		t.Errorf("got %+v %v %v of nothing", r, live, err)
	}
}

func refused(t *testing.T, open Open) {
	a, _ := open(t, nil)
	for name, req := range map[string]lease.AcquireRequest{
		"resource": {Holder: "h", RequestID: "r"},
		"holder":   {Resource: "agent/a", RequestID: "r"},
		"request":  {Resource: "agent/a", Holder: "h"},
		"negative": {Resource: "agent/a", Holder: "h", RequestID: "r", TTL: -1},
		"no trust": {Resource: "agent/a", Holder: "h", RequestID: "r", TTL: 50 * time.Millisecond},
		"last":     {Resource: "agent/a", Holder: "h", RequestID: "r", Floor: math.MaxInt64},
	} {
		if r, err := a.Acquire(t.Context(), req); err == nil {
			t.Errorf("%s: granted %v", name, r)
		}
	}
}

// I6: a token is above what the inbox has seen, and above every earlier one.
func floor(t *testing.T, open Open) {
	a, _ := open(t, nil)
	for i, c := range []struct{ floor, want uint64 }{{41, 42}, {7, 43}, {100, 101}} {
		req := ask("agent/a", "h", fmt.Sprint(i), long)
		req.Floor = c.floor
		if r := must(t, a, req); r.Token != c.want {
			t.Fatalf("token %d, want %d", r.Token, c.want)
		}
		if err := a.Release(t.Context(), "agent/a", c.want); err != nil {
			t.Fatal(err)
		}
	}
}

// An expired term never comes back; a renewal moves the end of a live one only.
func expiry(t *testing.T, open Open) {
	a, _ := open(t, nil)
	ctx := t.Context()
	r := must(t, a, ask("agent/a", "h1", "r1", short))
	begun := time.Now()
	for time.Since(begun) < 2*short {
		if _, err := a.Renew(ctx, "agent/a", "h1", r.Token); err != nil {
			if time.Since(begun) > short { // a busy machine
				return
			}
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"other token": second(a.Renew(ctx, "agent/a", "h1", r.Token+1)), "other holder": second(a.Renew(ctx, "agent/a", "h2", r.Token)),
		"other resource": second(a.Renew(ctx, "agent/b", "h1", r.Token)),
	} {
		isLost(t, what, err)
	}
	over(t, a, r)
	isLost(t, "renew", second(a.Renew(ctx, "agent/a", "h1", r.Token)))
	ended, _, err := a.Reap(ctx)
	if err != nil || len(ended) != 1 || ended[0].Token != r.Token || ended[0].Holder != "h1" {
		t.Errorf("reaped %v %v", ended, err)
	}
	if ended, _, err := a.Reap(ctx); err != nil || len(ended) != 0 {
		t.Errorf("reaped twice: %v %v", ended, err)
	}
	if again := must(t, a, ask("agent/a", "h1", "r1", short)); again.Token != r.Token+1 {
		t.Errorf("the same request after the end: %+v", again)
	}
	_, next, err := a.Reap(ctx)
	if err != nil || next <= 0 || next > short {
		t.Errorf("the next end in %v, %v", next, err)
	}
}

func second[A, B any](_ A, b B) B { return b }

// A release ends its own term alone, and may be repeated.
func release(t *testing.T, open Open) {
	a, _ := open(t, nil)
	ctx := t.Context()
	r := must(t, a, ask("agent/a", "h1", "r1", long))
	isLost(t, "release of none", a.Release(ctx, "agent/b", 1))
	isLost(t, "release of another", a.Release(ctx, "agent/a", r.Token+1))
	for range 2 {
		if err := a.Release(ctx, "agent/a", r.Token); err != nil {
			t.Error(err)
		}
	}
	isLost(t, "renew", second(a.Renew(ctx, "agent/a", "h1", r.Token)))
	next := must(t, a, ask("agent/a", "h2", "r2", long))
	isLost(t, "a late release", a.Release(ctx, "agent/a", r.Token))
	if err := a.Check(ctx, "agent/a", next.Token); err != nil || next.Token != r.Token+1 {
		t.Errorf("after a late release: %+v, %v", next, err)
	}
	if ended, _, err := a.Reap(ctx); err != nil || len(ended) != 0 {
		t.Errorf("reaped what was released: %v %v", ended, err)
	}
}

func yield(t *testing.T, open Open) {
	a, _ := open(t, nil)
	ctx := t.Context()
	if there, err := a.RequestYield(ctx, "agent/a"); there || err != nil {
		t.Errorf("asked nobody: %v %v", there, err)
	}
	r := must(t, a, ask("agent/a", "h1", "r1", long))
	if there, err := a.RequestYield(ctx, "agent/a"); !there || err != nil {
		t.Errorf("nobody to ask: %v", err)
	}
	for range 2 {
		if got, err := a.Renew(ctx, "agent/a", "h1", r.Token); err != nil || !got.YieldRequested {
			t.Errorf("renewed %+v %v", got, err)
		}
	}
	if err := a.Release(ctx, "agent/a", r.Token); err != nil {
		t.Fatal(err)
	}
	next := must(t, a, ask("agent/a", "h2", "r2", long))
	if got, err := a.Renew(ctx, "agent/a", "h2", next.Token); err != nil || got.YieldRequested {
		t.Errorf("the next term inherits the yield: %+v %v", got, err)
	}
}

// A holder that is known to be dead is waited for by nobody.
func deadHolder(t *testing.T, open Open) {
	var mu sync.Mutex
	gone := ""
	a, _ := open(t, func(h string) bool { mu.Lock(); defer mu.Unlock(); return h == gone })
	ctx := t.Context()
	x, y := must(t, a, ask("agent/a", "h1", "r1", long)), must(t, a, ask("agent/b", "h1", "r2", long))
	mu.Lock()
	gone = "h1"
	mu.Unlock()
	next := must(t, a, ask("agent/a", "h2", "r3", long))
	if next.Token != x.Token+1 {
		t.Errorf("taken over under %d", next.Token)
	}
	isLost(t, "the dead one's renewal", second(a.Renew(ctx, "agent/a", "h1", x.Token)))
	ended, _, err := a.Reap(ctx)
	if err != nil || len(ended) != 1 || ended[0].Resource != "agent/b" || ended[0].Token != y.Token {
		t.Errorf("reaped %v %v", ended, err)
	}
	isLost(t, "check", a.Check(ctx, "agent/b", y.Token))
}

// A restart of the registry takes no lease from a living holder, and no token is given
// out twice.
func restart(t *testing.T, open Open) {
	a, again := open(t, nil)
	ctx := t.Context()
	r := must(t, a, ask("agent/a", "h1", "r1", long))
	b := again()
	if got, err := b.Renew(ctx, "agent/a", "h1", r.Token); err != nil || got.Token != r.Token {
		t.Errorf("renewed %+v %v", got, err)
	}
	if got := must(t, b, ask("agent/a", "h1", "r1", long)); got.Token != r.Token {
		t.Errorf("the repeat: %+v", got)
	}
	if err := b.Release(ctx, "agent/a", r.Token); err != nil {
		t.Fatal(err)
	}
	if got := must(t, again(), ask("agent/a", "h2", "r2", long)); got.Token != r.Token+1 {
		t.Errorf("after a release and a restart: %+v", got)
	}
}

// Of many that ask at once one has the resource, and tokens rise strictly.
func race(t *testing.T, open Open) {
	a, _ := open(t, nil)
	const holders, rounds = 8, 25
	var mu sync.Mutex
	var holder int
	var tokens []uint64
	var g sync.WaitGroup
	for h := range holders {
		g.Go(func() {
			name := fmt.Sprint("h", h)
			for i := range rounds {
				r, err := a.Acquire(t.Context(), ask("agent/a", name, fmt.Sprint(i), long))
				if _, held := errors.AsType[*lease.HeldError](err); held {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if holder++; holder != 1 {
					t.Errorf("%d holders", holder)
				}
				tokens = append(tokens, r.Token)
				mu.Unlock()
				mu.Lock()
				holder--
				mu.Unlock()
				if err := a.Release(t.Context(), "agent/a", r.Token); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	if len(tokens) == 0 || !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
		t.Errorf("tokens %v", tokens)
	}
}
