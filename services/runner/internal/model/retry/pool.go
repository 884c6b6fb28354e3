package retry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// The figures of docs/spec/reliability.md, section 8.
const (
	// OpenAfter is how many calls in a row that find a provider unavailable open a breaker.
	OpenAfter = 3
	// ProbeEvery is the time between probes of an unavailable provider.
	ProbeEvery = 30 * time.Second
	// MaxRetryAfter is the longest Retry-After that is honored.
	MaxRetryAfter = time.Minute
	// firstBackoff doubles up to doublings times; while a provider is away, up to lastAway.
	firstBackoff = time.Second
	doublings    = 2
	lastAway     = 60 // times the first
)

// errBack is why a probe is ended that has had nothing when the provider was back.
var errBack = errors.New("the provider answers other calls")

// Pool holds what the calls of one process share: the breakers, by provider,
// and the retry budget. Make one with NewPool.
type Pool struct {
	mu       sync.Mutex
	waits    Waits
	breakers map[string]*breaker
	budget   budget
}

// Waits of a pool; zero values take the defaults.
type Waits struct {
	// Backoff is the longest wait before the second try; it doubles twice, and up to
	// 60 times of it while a provider is unavailable. Default 1 s.
	Backoff time.Duration
	// Probe is the time between probes of an unavailable provider; default
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
	return &Pool{waits: w, breakers: make(map[string]*breaker)}
}

// Caller makes tries with one driver. Callers of drivers with the same name
// share a breaker. A Caller is safe for concurrent use.
type Caller struct {
	pool    *Pool
	driver  model.Driver
	breaker *breaker
}

// Caller wraps a driver; it is cheap, one per turn is fine.
func (p *Pool) Caller(d model.Driver) *Caller {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.breakers[d.Name()]
	if !ok {
		b = &breaker{probe: p.waits.Probe}
		p.breakers[d.Name()] = b
	}
	return &Caller{pool: p, driver: d, breaker: b}
}

// Outage is a provider whose breaker is not closed.
type Outage struct {
	Provider string
	// Err is why its last call failed.
	Err *model.Error
	// Wait is how long until it may be probed; 0: now.
	Wait time.Duration
}

// Outages are the providers whose breaker is not closed, by name. It is for doctor and
// status.
func (p *Pool) Outages() (out []Outage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, b := range p.breakers {
		if wait, why, back := b.state(time.Now()); back != nil {
			out = append(out, Outage{name, why, wait})
		}
	}
	slices.SortFunc(out, func(a, b Outage) int { return strings.Compare(a.Provider, b.Provider) })
	return out
}

// Outcome is what a try means for the turn.
type Outcome struct {
	// Err is nil when the Response is good.
	Err *model.Error
	// Sent reports whether the driver was called at all. When it was not, because the
	// provider is unavailable, Err is what it last answered.
	Sent bool
	// Counts reports whether the try is charged to the message. A success
	// counts.
	Counts bool
	// Retry reports whether another try may help.
	Retry bool
	// Wait is how long to wait before it; 0 when Retry is false.
	Wait time.Duration
	// Back is closed when the provider is available again, which ends the wait; nil: only
	// time does.
	Back <-chan struct{}
}

// Try makes at most one call. While the breaker is open, or the budget is used
// up for a further try, it returns at once with Sent and Counts false and the
// time to wait.
func (c *Caller) Try(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, Outcome) {
	again := req.Try-req.Away > 1
	// Looked at before the permit: a permit that is not used would be lost.
	if wait, ok := c.pool.budget.allow(again, time.Now()); !ok {
		err := model.Errorf(model.Unavailable, "%s: too many calls are being repeated", c.driver.Name())
		// The jitter keeps those who wait for the same moment apart.
		return model.Response{}, Outcome{Err: err, Retry: true, Wait: wait + c.pool.waits.charged(1)}
	}
	p, ok, why, wait, back := c.breaker.acquire(time.Now())
	if !ok {
		c.pool.budget.undo(again, time.Now())
		// Those who wait wake together: one of them is the probe, and the others only ask.
		return model.Response{}, Outcome{Err: why, Retry: true, Wait: wait, Back: back}
	}
	response, err := c.call(ctx, p, req, onDelta)
	if err == nil {
		return response, Outcome{Sent: true, Counts: true}
	}
	outcome := Outcome{Err: err, Sent: true, Counts: err.CountsTry(), Retry: err.Recoverable()}
	switch {
	case !outcome.Retry:
	case outcome.Counts:
		outcome.Wait = max(c.pool.waits.charged(req.Try-req.Away), min(err.RetryAfter, MaxRetryAfter))
	case errors.Is(err, errBack):
		outcome.Wait = c.pool.waits.away(0)
	default:
		outcome.Wait = max(c.pool.waits.away(req.Away), min(err.RetryAfter, MaxRetryAfter))
		if wait, _, back := c.breaker.state(time.Now()); back != nil {
			outcome.Wait, outcome.Back = max(wait, 1), back
		}
	}
	return model.Response{}, outcome
}

// call makes the call and records in the breaker what it proved.
func (c *Caller) call(ctx context.Context, p permit, req model.Request, onDelta func(model.Delta)) (model.Response, *model.Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var reached atomic.Bool
	if p.probe {
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-p.silent:
				if !reached.Load() {
					cancel(errBack)
				}
			case <-over:
			}
		}()
	}
	response, err := c.driver.Generate(ctx, req, func(d model.Delta) {
		if !reached.Swap(true) {
			c.breaker.available() // at once: an answer may take minutes
		}
		if onDelta != nil {
			onDelta(d)
		}
	})
	failure := model.AsError(err)
	switch {
	case failure == nil:
	case errors.Is(context.Cause(ctx), errBack) && !reached.Load():
		return response, &model.Error{Class: model.Unavailable, Message: c.driver.Name() + ": sent nothing while it answered others", Err: errBack}
	case failure.Class == model.Canceled, failure.Class == model.Timeout:
		return response, failure // ours: it proves nothing
	case reached.Load() && failure.Unavailable(): // in the middle of its answer
		failure = failure.In(model.CutStream)
	case !reached.Load() && failure.Class == model.CutStream: // before any of it
		failure = failure.In(model.Unavailable)
	}
	if failure != nil && failure.Unavailable() {
		c.breaker.unavailable(time.Now(), failure)
	} else {
		c.breaker.available()
	}
	return response, failure
}

// charged is full jitter within 1, 2, 4, 4, ... s after a charged try.
func (w Waits) charged(try int) time.Duration {
	return pause.Backoff{First: w.Backoff, Last: w.Backoff << doublings}.Wait(max(try-1, 0))
}

// away is full jitter within 1, 2, 4, ..., 60 s after so many tries in a row that found the
// provider unavailable.
func (w Waits) away(failures int) time.Duration {
	return pause.Backoff{First: w.Backoff, Last: w.Backoff * lastAway}.Wait(max(failures, 0))
}
