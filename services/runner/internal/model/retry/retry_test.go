package retry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a driver at the edge whose answers are functions.
type scripted struct {
	name  string
	calls int
	do    func(ctx context.Context, onDelta func(model.Delta)) error
}

func (s *scripted) Name() string { return s.name }

func (s *scripted) Generate(ctx context.Context, _ model.Request, onDelta func(model.Delta)) (model.Response, error) {
	s.calls++
	if err := s.do(ctx, onDelta); err != nil {
		return model.Response{}, err
	}
	return model.Response{Text: "ok", FinishReason: model.FinishStop}, nil
}

func fails(class model.Class) func(context.Context, func(model.Delta)) error {
	return func(context.Context, func(model.Delta)) error { return model.Errorf(class, "scripted") }
}

func succeeds(context.Context, func(model.Delta)) error { return nil }

func try(t *testing.T, c *retry.Caller, n int) retry.Outcome {
	t.Helper()
	response, outcome := c.Try(t.Context(), model.Request{Try: n}, nil)
	if (outcome.Err == nil) != (response.Text == "ok") {
		t.Errorf("response %+v with outcome %+v", response, outcome)
	}
	if outcome.Retry != (outcome.Wait > 0) {
		t.Errorf("wait %v, retry %v", outcome.Wait, outcome.Retry)
	}
	return outcome
}

// S0-86: recoverable failures wait within 1, 2, 4 s, or as long as the
// provider asks, up to a minute. S0-87: the others are not repeated.
func TestOutcomes(t *testing.T) {
	for _, tt := range []struct {
		class         model.Class
		after         time.Duration
		try           int
		counts, again bool
		least, most   time.Duration
	}{
		{model.BadResponse, 0, 0, true, true, 1, time.Second},
		{model.BadResponse, 0, 1, true, true, 1, time.Second},
		{model.BadResponse, 0, 2, true, true, 1, 2 * time.Second},
		{model.BadResponse, 0, 3, true, true, 1, 4 * time.Second},
		{model.BadResponse, 0, 1000, true, true, 1, 4 * time.Second},
		// F4: what is unavailable is waited for.
		{model.Unavailable, 0, 1, false, true, 1, time.Second},
		{model.CutStream, 0, 1, false, true, 1, time.Second}, // before any of the answer
		{model.RateLimited, 7 * time.Second, 1, false, true, 7 * time.Second, 7 * time.Second},
		{model.RateLimited, time.Hour, 1, false, true, time.Minute, time.Minute},
		{model.Unreachable, 0, 1, false, true, 1, time.Second},
		{model.Auth, 0, 1, true, false, 0, 0},
		{model.Config, 0, 1, true, false, 0, 0},
		{model.ContextTooLong, 0, 1, true, false, 0, 0},
		{model.Policy, 0, 1, true, false, 0, 0},
		{model.Canceled, 0, 1, false, false, 0, 0},
		{model.Timeout, 0, 1, true, false, 0, 0},
	} {
		t.Run(fmt.Sprint(tt.class, tt.try), func(t *testing.T) {
			driver := &scripted{name: "p", do: func(context.Context, func(model.Delta)) error {
				return &model.Error{Class: tt.class, RetryAfter: tt.after, Message: "scripted"}
			}}
			for range 50 { // jitter: bounds hold each time
				got := try(t, retry.NewPool(retry.Waits{}).Caller(driver), tt.try)
				if !got.Sent || got.Counts != tt.counts || got.Retry != tt.again || got.Wait < tt.least || got.Wait > tt.most {
					t.Fatalf("outcome %+v", got)
				}
			}
			if driver.calls != 50 {
				t.Errorf("%d calls for 50 tries", driver.calls)
			}
		})
	}
	good := try(t, retry.NewPool(retry.Waits{}).Caller(&scripted{name: "p", do: succeeds}), 1)
	if good != (retry.Outcome{Sent: true, Counts: true}) {
		t.Errorf("success: %+v", good)
	}
}

// An outage opens the breaker; one probe each 30 s goes out, no try is
// charged, other providers are not concerned, and the first probe that is
// answered (with whatever) closes it.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := retry.NewPool(retry.Waits{})
		down := &scripted{name: "down", do: fails(model.Unreachable)}
		c := pool.Caller(down)
		for i := range retry.OpenAfter {
			if got := try(t, c, 1); !got.Sent || got.Counts {
				t.Fatalf("call %d: %+v", i, got)
			}
		}
		if open := pool.Outages(); len(open) != 1 || open[0].Provider != "down" || open[0].Wait != retry.ProbeEvery || open[0].Err.Class != model.Unreachable {
			t.Fatalf("open: %v", open)
		}
		// Open: a new Caller of the same provider sends nothing.
		got := try(t, pool.Caller(down), 1)
		if got.Sent || got.Counts || !got.Retry || got.Err.Class != model.Unreachable || got.Wait != retry.ProbeEvery || got.Back == nil {
			t.Errorf("while open: %+v", got)
		}
		if other := try(t, pool.Caller(&scripted{name: "other", do: succeeds}), 1); !other.Counts {
			t.Errorf("another provider: %+v", other)
		}
		// An hour of outage: a waiter that does as it is told probes, is never
		// charged, and calls at most once per probe time.
		start, calls := time.Now(), down.calls
		for time.Since(start) < time.Hour {
			got := try(t, c, 1)
			if got.Counts || !got.Retry {
				t.Fatalf("in the outage: %+v", got)
			}
			time.Sleep(got.Wait) // the bubble's clock
		}
		if probes := down.calls - calls; probes < 100 || probes > 121 {
			t.Errorf("%d probes in an hour", probes)
		}
		// Back again, if only with nonsense.
		time.Sleep(retry.ProbeEvery)
		down.do = fails(model.BadResponse)
		if got := try(t, c, 1); !got.Sent || !got.Counts {
			t.Errorf("the probe: %+v", got)
		}
		if open := pool.Outages(); len(open) != 0 {
			t.Errorf("still open: %v", open)
		}
	})
}

// Only calls in a row count: a provider that answers now and then is up.
func TestBreakerNeedsARow(t *testing.T) {
	d := &scripted{name: "p"}
	c := retry.NewPool(retry.Waits{}).Caller(d)
	for i := range 30 {
		d.do = fails(model.Unreachable)
		if i%3 == 2 {
			d.do = fails(model.BadResponse)
		}
		if got := try(t, c, 1); !got.Sent {
			t.Fatalf("call %d was held: %+v", i, got)
		}
	}
}

// F4: one probe each 30 s, whether the one before has ended or not; a probe that our side
// ends, or that panics, proves nothing.
func TestOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &scripted{name: "p", do: fails(model.Unreachable)}
		c := retry.NewPool(retry.Waits{}).Caller(d)
		for range retry.OpenAfter {
			try(t, c, 1)
		}
		time.Sleep(retry.ProbeEvery)
		ctx, cancel := context.WithCancel(t.Context())
		hangs := func(ctx context.Context, _ func(model.Delta)) error {
			<-ctx.Done()
			return model.Errorf(model.Canceled, "scripted")
		}
		d.do = hangs
		probe := make(chan retry.Outcome)
		go func() {
			_, outcome := c.Try(ctx, model.Request{Try: 1}, nil)
			probe <- outcome
		}()
		synctest.Wait()
		if got := try(t, c, 1); got.Sent || got.Counts || got.Wait != retry.ProbeEvery {
			t.Errorf("next to the probe: %+v", got)
		}
		cancel()
		if got := <-probe; got.Counts || got.Retry {
			t.Errorf("the canceled probe: %+v", got)
		}
		if got := try(t, c, 1); got.Sent {
			t.Errorf("a canceled probe closed the breaker: %+v", got)
		}

		time.Sleep(retry.ProbeEvery)
		d.do = func(context.Context, func(model.Delta)) error { panic("scripted") }
		func() {
			defer func() { _ = recover() }()
			try(t, c, 1)
		}()
		if got := try(t, c, 1); got.Sent {
			t.Errorf("a panic closed the breaker: %+v", got)
		}

		// A probe that hangs does not keep the next one back, and ends when that is answered.
		time.Sleep(retry.ProbeEvery)
		d.do = hangs
		go func() {
			_, outcome := c.Try(t.Context(), model.Request{Try: 1}, nil)
			probe <- outcome
		}()
		synctest.Wait()
		held := try(t, c, 1)
		time.Sleep(retry.ProbeEvery)
		d.do = succeeds
		if got := try(t, c, 1); !got.Sent || !got.Counts {
			t.Errorf("the next probe: %+v", got)
		}
		if got := <-probe; got.Counts || !got.Retry || got.Wait > time.Second {
			t.Errorf("the probe that hangs: %+v", got)
		}
		select {
		case <-held.Back:
		default:
			t.Error("those who wait are not told")
		}

		// The first piece of an answer proves it, long before the end.
		for range retry.OpenAfter {
			d.do = fails(model.Unavailable)
			try(t, c, 1)
		}
		time.Sleep(retry.ProbeEvery)
		d.do = func(_ context.Context, onDelta func(model.Delta)) error {
			onDelta(model.Delta{Text: "x"})
			return model.Errorf(model.Canceled, "scripted")
		}
		if got := try(t, c, 1); !got.Sent {
			t.Errorf("the permit of the panic is lost: %+v", got)
		}
		d.do = succeeds
		if got := try(t, c, 1); !got.Sent || !got.Counts {
			t.Errorf("after a probe with an answer: %+v", got)
		}
	})
}

// F4: what ends an answer that had begun is charged, whatever the provider calls it.
func TestMiddleOfAnAnswer(t *testing.T) {
	for _, class := range []model.Class{model.RateLimited, model.Unavailable, model.CutStream} {
		d := &scripted{name: "p", do: func(_ context.Context, onDelta func(model.Delta)) error {
			onDelta(model.Delta{Text: "x"})
			return model.Errorf(class, "scripted")
		}}
		c := retry.NewPool(retry.Waits{}).Caller(d)
		for range retry.OpenAfter + 1 {
			if got := try(t, c, 1); !got.Sent || !got.Counts || !got.Retry || got.Err.Class != model.CutStream {
				t.Errorf("%v: %+v", class, got)
			}
		}
	}
}

// F4: no probe before the Retry-After, and the wait of a provider that is away now and then
// grows up to a minute.
func TestWaitsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &scripted{name: "p", do: func(context.Context, func(model.Delta)) error {
			return &model.Error{Class: model.RateLimited, RetryAfter: 50 * time.Second, Message: "scripted"}
		}}
		c := retry.NewPool(retry.Waits{}).Caller(d)
		for range retry.OpenAfter {
			if got := try(t, c, 1); got.Wait != 50*time.Second {
				t.Errorf("%+v", got)
			}
		}
		time.Sleep(49 * time.Second)
		if got := try(t, c, 1); got.Sent || got.Wait != time.Second || got.Err.Class != model.RateLimited {
			t.Errorf("before its time: %+v", got)
		}
	})
	most := map[int]time.Duration{}
	for range 300 {
		for away := range 9 {
			c := retry.NewPool(retry.Waits{}).Caller(&scripted{name: "p", do: fails(model.Unavailable)})
			_, got := c.Try(t.Context(), model.Request{Try: away + 1, Away: away}, nil)
			most[away] = max(most[away], got.Wait)
		}
	}
	for away, limit := range []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 32e9, 60e9, 60e9, 60e9} {
		if most[away] > limit || most[away] < limit*3/4 {
			t.Errorf("after %d: up to %v, want %v", away, most[away], limit)
		}
	}
}

// 10 % of the calls, and 10 in any case; what is held is not charged and may
// go out later.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &scripted{name: "p", do: fails(model.BadResponse)}
		c := retry.NewPool(retry.Waits{}).Caller(d)
		sent := func(n int) (count int) {
			for range n {
				if got := try(t, c, 2); got.Sent {
					count++
				} else if got.Counts || got.Wait > 11*time.Second {
					t.Fatalf("held try: %+v", got)
				}
			}
			return count
		}
		if got := sent(50); got != 10 {
			t.Errorf("%d retries without calls, want 10", got)
		}
		for range 290 {
			try(t, c, 1) // first tries are never held
		}
		if got := sent(100); got < 20 || got > 23 { // 10 % of 300 and of the retries themselves
			t.Errorf("%d more retries beside 300 calls", got)
		}
		time.Sleep(time.Minute)
		if got := sent(50); got != 10 {
			t.Errorf("%d retries a minute later, want 10", got)
		}
	})
}

// Tries that the breaker holds use no budget.
func TestOpenBreakerUsesNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := retry.NewPool(retry.Waits{})
		c := pool.Caller(&scripted{name: "down", do: fails(model.Unreachable)})
		for range retry.OpenAfter + 100 {
			try(t, c, 2)
		}
		up := pool.Caller(&scripted{name: "up", do: succeeds})
		for i := range 10 - retry.OpenAfter {
			if got := try(t, up, 2); !got.Sent {
				t.Fatalf("retry %d was held: %+v", i, got)
			}
		}
	})
}

func TestDeltasPassThrough(t *testing.T) {
	d := &scripted{name: "p", do: func(_ context.Context, onDelta func(model.Delta)) error {
		onDelta(model.Delta{Text: "a"})
		onDelta(model.Delta{Reasoning: "b"})
		return nil
	}}
	var got []model.Delta
	_, outcome := retry.NewPool(retry.Waits{}).Caller(d).Try(t.Context(), model.Request{}, func(d model.Delta) { got = append(got, d) })
	if outcome.Err != nil || len(got) != 2 || got[0].Text != "a" || got[1].Reasoning != "b" {
		t.Errorf("%v %+v", got, outcome)
	}
}
