package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// EventLimit is how long all hooks of an event may take together.
const EventLimit = 15 * time.Second

const (
	// maxFailures in a row open the breaker of a hook for breakerWait.
	maxFailures = 5
	breakerWait = time.Minute
)

// Outcomes of calls, for metrics.
const (
	outcomeOK       = "ok"
	outcomeChanged  = "changed"
	outcomeCanceled = "canceled"
	outcomeFailed   = "failed"
	outcomeTimeout  = "timeout"
	outcomeSkipped  = "skipped" // its breaker is open
)

// ErrNoRunner reports that the program was not started, through no fault of its own. It opens no breaker.
var ErrNoRunner = errors.New("no runner can run it now")

// Meter counts; [obs.HookMetrics] does.
type Meter interface {
	HookCalled(event, outcome string, took time.Duration)
	// HookBreakers notes how many breakers are open.
	HookBreakers(open int)
}

// Failure is the error of an event that a closed hook stops because it failed.
type Failure struct {
	Hook string
	Err  error
	// Retry is how long to wait before the event is tried again.
	Retry time.Duration
}

// Error is the error's.
func (f *Failure) Error() string { return fmt.Sprintf("hook %s failed: %v", f.Hook, f.Err) }

// Unwrap returns what happened.
func (f *Failure) Unwrap() error { return f.Err }

// retryFailure is the wait after a failure that opened no breaker.
const retryFailure = 5 * time.Second

// Decision is what the hooks of an event decided. The zero value changes nothing.
type Decision struct {
	Hook string // that decided last
	Answer
}

// Caller calls hooks. It is safe for concurrent use.
type Caller struct {
	// Run runs the program of a hook and returns its answer. The error is its failure; one that wraps
	// [ErrNoRunner] is not its own.
	Run func(ctx context.Context, h Hook, e *Event, input []byte) (Answer, error)
	// Clean takes secrets out of the texts of an event; nil: they stay.
	Clean func(string) string
	// Meter and Logger are required.
	Meter  Meter
	Logger *slog.Logger
	// Now is the time; nil: time.Now.
	Now func() time.Time

	mu       sync.Mutex
	breakers map[string]*breaker // of hooks that failed last
}

// breaker counts the failures of a hook in a row.
type breaker struct {
	failures int
	until    time.Time
}

// Call calls the hooks that match an event. The text of the event's payload becomes what they make of it. The error
// is a [*Failure] of a closed hook, or the cause of ctx.
func (c *Caller) Call(ctx context.Context, hooks []Hook, e *Event) (d Decision, err error) {
	list := matching(hooks, e)
	if len(list) == 0 {
		return d, nil
	}
	all, cancel := context.WithTimeout(ctx, EventLimit)
	defer cancel()
	s := find(e.Name)
	if len(s.fields) == 0 {
		var observers sync.WaitGroup
		for _, h := range list {
			observers.Go(func() { _, _ = c.one(all, h, e) }) // logged
		}
		observers.Wait()
		return d, nil
	}
	for _, h := range list {
		seen := c.clean(e.Payload.Text)
		a, err := c.one(all, h, e)
		switch {
		case ctx.Err() != nil:
			return Decision{}, context.Cause(ctx)
		case err != nil && h.closed(s):
			return Decision{}, &Failure{h.Name, err, max(retryFailure, c.shut(key(h, e)))}
		case err != nil:
		case a.Cancel:
			return Decision{h.Name, Answer{Cancel: true, Reason: a.Reason}}, nil
		case a.Text != nil && *a.Text != seen:
			d.Hook, d.Text, e.Payload.Text = h.Name, a.Text, *a.Text
		}
	}
	return d, nil
}

var errBreaker = fmt.Errorf("it failed %d times in a row and is not called for %s", maxFailures, breakerWait)

var errLate = fmt.Errorf("the hooks before it left it too little of the %s of the event", EventLimit)

// one calls one hook.
func (c *Caller) one(ctx context.Context, h Hook, e *Event) (a Answer, err error) {
	k := key(h, e)
	if c.shut(k) > 0 {
		c.Meter.HookCalled(e.Name, outcomeSkipped, 0)
		return a, errBreaker
	}
	began := c.now()
	within, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	input, err := c.encode(e, h.Name)
	own := err == nil // what happens is the doing of the hook
	if own {
		a, err = c.Run(within, h, e, input)
	}
	outcome := outcomeOK
	switch {
	case err != nil && h.Timeout < EventLimit && errors.Is(ctx.Err(), context.DeadlineExceeded):
		outcome, err, own = outcomeTimeout, errLate, false
	case err != nil && within.Err() != nil && errors.Is(context.Cause(within), context.DeadlineExceeded):
		outcome, err = outcomeTimeout, fmt.Errorf("it has not answered within %s", min(h.Timeout, EventLimit))
	case err != nil:
		outcome = outcomeFailed
	case a.Cancel:
		outcome = outcomeCanceled
	case a.Text != nil:
		outcome = outcomeChanged
	}
	c.Meter.HookCalled(e.Name, outcome, c.now().Sub(began))
	if own && (ctx.Err() == nil || outcome == outcomeTimeout) {
		c.note(k, err)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		c.Logger.Warn("a hook failed", "hook", h.Name, "event", e.Name, "agent_id", e.Agent, "error", err)
	}
	return a, err
}

func (c *Caller) clean(text string) string {
	if c.Clean == nil {
		return text
	}
	return c.Clean(text)
}

// encode is an event for one hook.
func (c *Caller) encode(e *Event, hook string) ([]byte, error) {
	out := *e
	out.Payload.Text, out.Payload.Args = c.clean(e.Payload.Text), c.clean(e.Payload.Args)
	return out.encode(hook)
}

// key names the breaker of a hook: agents have hooks of the same name.
func key(h Hook, e *Event) string {
	if h.OfHome {
		return h.Name
	}
	return e.Agent + "/" + h.Name
}

func (c *Caller) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// shut is how long the breaker of a hook is still open.
func (c *Caller) shut(key string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.breakers[key]; b != nil {
		return max(0, b.until.Sub(c.now()))
	}
	return 0
}

// note takes the end of a call into account.
func (c *Caller) note(key string, err error) {
	if errors.Is(err, ErrNoRunner) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.breakers[key]
	switch {
	case err == nil && b == nil:
		return
	case err == nil:
		delete(c.breakers, key)
	default:
		if b == nil {
			b = &breaker{}
			if c.breakers == nil {
				c.breakers = map[string]*breaker{}
			}
			c.breakers[key] = b
		}
		if b.failures++; b.failures >= maxFailures {
			b.until = c.now().Add(breakerWait)
		}
	}
	open := 0
	for _, b := range c.breakers {
		if b.until.After(c.now()) {
			open++
		}
	}
	c.Meter.HookBreakers(open)
}
