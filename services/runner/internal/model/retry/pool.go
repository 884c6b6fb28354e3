package retry

import (
	"context"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// The figures of RELIABILITY.md.
const (
	// OpenAfter is how many unreachable calls in a row open a breaker.
	OpenAfter = 3
	// ProbeEvery is the time between probes of an unreachable provider.
	ProbeEvery = 30 * time.Second
	// MaxRetryAfter is the longest Retry-After that is honored.
	MaxRetryAfter = time.Minute
	// firstBackoff doubles up to doublings times.
	firstBackoff = time.Second
	doublings    = 2
)

// Pool holds what the calls of one process share: the breakers, by provider,
// and the retry budget. Make one with NewPool.
type Pool struct {
	mu       sync.Mutex
	waits    Waits
	breakers map[string]circuitbreaker.CircuitBreaker[any]
	budget   budget
}

// Waits of a pool; zero values take the defaults.
type Waits struct {
	// Backoff is the longest wait before the second try; it doubles twice.
	// Default 1 s.
	Backoff time.Duration
	// Probe is the time between probes of an unreachable provider; default
	// ProbeEvery.
	Probe time.Duration
}

// NewPool makes the pool of a process.
func NewPool(w Waits) *Pool {
	if w.Backoff <= 0 {
		w.Backoff = firstBackoff
	}
	if w.Probe <= 0 {
		w.Probe = ProbeEvery
	}
	return &Pool{waits: w, breakers: make(map[string]circuitbreaker.CircuitBreaker[any])}
}

// Caller makes tries with one driver. Callers of drivers with the same name
// share a breaker. A Caller is safe for concurrent use.
type Caller struct {
	pool    *Pool
	driver  model.Driver
	breaker circuitbreaker.CircuitBreaker[any]
}

// Caller wraps a driver; it is cheap, one per turn is fine.
func (p *Pool) Caller(d model.Driver) *Caller {
	return &Caller{pool: p, driver: d, breaker: p.breaker(d.Name())}
}

func (p *Pool) breaker(provider string) circuitbreaker.CircuitBreaker[any] {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.breakers[provider]
	if !ok {
		b = circuitbreaker.NewBuilder[any]().
			WithFailureThreshold(OpenAfter).
			WithSuccessThreshold(1).
			WithDelay(p.waits.Probe).
			Build()
		p.breakers[provider] = b
	}
	return b
}

// Open names the providers whose breaker is not closed, and how long until
// each may be probed (0: now). It is for doctor and status.
func (p *Pool) Open() map[string]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := make(map[string]time.Duration)
	for name, b := range p.breakers {
		if !b.IsClosed() {
			open[name] = b.RemainingDelay()
		}
	}
	return open
}

// Outcome is what a try means for the turn.
type Outcome struct {
	// Err is nil when the Response is good.
	Err *model.Error
	// Sent reports whether the driver was called at all.
	Sent bool
	// Counts reports whether the try is charged to the message. A success
	// counts.
	Counts bool
	// Retry reports whether another try may help.
	Retry bool
	// Wait is how long to wait before it; 0 when Retry is false.
	Wait time.Duration
}

// Try makes at most one call. While the breaker is open, or the budget is used
// up for a further try, it returns at once with Sent and Counts false and the
// time to wait.
func (c *Caller) Try(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, Outcome) {
	again := req.Try > 1
	// Looked at before the permit: a permit that is not used would be lost.
	if wait, ok := c.pool.budget.allow(again, time.Now()); !ok {
		return model.Response{}, c.held(model.Errorf(model.Unavailable, "%s: too many calls are being repeated", c.driver.Name()), wait)
	}
	if !c.breaker.TryAcquirePermit() {
		c.pool.budget.undo(again, time.Now())
		err := model.Errorf(model.Unreachable, "%s: not reachable at the last tries, the next probe is due soon", c.driver.Name())
		return model.Response{}, c.held(err, c.breaker.RemainingDelay())
	}
	response, err := c.call(ctx, req, onDelta)
	if err == nil {
		return response, Outcome{Sent: true, Counts: true}
	}
	outcome := Outcome{Err: err, Sent: true, Counts: err.CountsTry(), Retry: err.Recoverable()}
	if outcome.Retry {
		outcome.Wait = max(c.pool.waits.backoff(req.Try), min(err.RetryAfter, MaxRetryAfter))
		if !outcome.Counts { // the call may just have opened the breaker
			outcome.Wait = max(outcome.Wait, c.breaker.RemainingDelay())
		}
	}
	return model.Response{}, outcome
}

// held is the outcome of a try that was not made. The jitter keeps those who
// wait for the same moment apart.
func (c *Caller) held(err *model.Error, wait time.Duration) Outcome {
	return Outcome{Err: err, Retry: true, Wait: wait + c.pool.waits.backoff(1)}
}

// call makes the call and records in the breaker what it proved, also when the
// driver panics: a probe's permit must come back.
func (c *Caller) call(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, *model.Error) {
	reached, settled := false, false
	defer func() {
		if !settled {
			c.record(reached, false)
		}
	}()
	response, err := c.driver.Generate(ctx, req, func(d model.Delta) {
		reached = true
		if onDelta != nil {
			onDelta(d)
		}
	})
	settled = true
	failure := model.AsError(err)
	switch {
	case failure == nil:
		c.record(true, false)
	case failure.Class == model.Unreachable:
		c.record(false, true)
	case failure.Class == model.Canceled, failure.Class == model.Timeout:
		c.record(reached, false)
	default:
		c.record(true, false)
	}
	return response, failure
}

// record records in the breaker that the provider was reached, or was not, or
// (neither) that nothing is known; the last ends only a probe.
func (c *Caller) record(reached, unreachable bool) {
	switch {
	case reached:
		c.breaker.RecordSuccess()
	case unreachable, c.breaker.IsHalfOpen():
		c.breaker.RecordFailure()
	}
}

// backoff is full jitter within 1, 2, 4, 4, ... s before try+1.
func (w Waits) backoff(try int) time.Duration {
	return pause.Backoff{First: w.Backoff, Last: w.Backoff << doublings}.Wait(max(try-1, 0))
}
