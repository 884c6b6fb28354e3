package retry

import (
	"sync"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// breaker keeps calls from a provider that is known to be unavailable. It counts time, not
// probes that are under way: one that hangs does not keep the next one back, so a provider
// that returns is noticed after one probe time, whatever hangs.
type breaker struct {
	probe time.Duration

	mu       sync.Mutex
	failures int           // in a row, while closed
	closed   chan struct{} // not nil while open; closed when the breaker closes
	next     time.Time     // of the next probe, while open
	after    time.Time     // no probe before it: Retry-After
	why      *model.Error  // the last failure
}

// permit is one call that may be made. silent ends, for a probe, when another call finds
// that the provider is back.
type permit struct {
	probe  bool
	silent <-chan struct{}
}

// acquire permits a call, or answers why there is none, how long until the next probe, and
// what is closed when the provider is back before.
func (b *breaker) acquire(now time.Time) (p permit, ok bool, why *model.Error, wait time.Duration, back <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed == nil:
		return permit{}, true, nil, 0, nil
	case now.Before(b.next):
		return permit{}, false, b.why, b.next.Sub(now), b.closed
	}
	b.next = now.Add(b.probe)
	return permit{probe: true, silent: b.closed}, true, nil, 0, nil
}

// unavailable records a call that found the provider unavailable.
func (b *breaker) unavailable(now time.Time, why *model.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.why = why
	if after := now.Add(min(why.RetryAfter, MaxRetryAfter)); after.After(b.after) {
		b.after = after
	}
	if b.failures++; b.closed == nil && b.failures >= OpenAfter {
		b.closed, b.next = make(chan struct{}), now.Add(b.probe)
	}
	if b.after.After(b.next) {
		b.next = b.after
	}
}

// available records that the provider answers.
func (b *breaker) available() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
	if b.closed != nil {
		close(b.closed)
		b.closed = nil
	}
}

// state is how long until the next probe, why the last call failed, and what is closed when
// the provider is back; nil while calls are made.
func (b *breaker) state(now time.Time) (wait time.Duration, why *model.Error, back <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		return 0, nil, nil
	}
	return max(b.next.Sub(now), 0), b.why, b.closed
}
