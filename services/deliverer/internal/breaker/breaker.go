// Package breaker decides whether a channel is up, with one circuit breaker per
// channel and host, so that an outage spends no attempt of any message and is
// probed by one message at a time.
//
//	          Unavailable                 30 s, or the receiver's Retry-After
//	closed ------------------> open -----------------------------------+
//	  ^                          ^                                     v
//	  |                          +---- Unavailable, no verdict ---- half-open
//	  +----------- sent, Failed, Rejected: the channel answers ---- (one message)
//
// It opens at the first Unavailable. A higher threshold would gain nothing: an
// Unavailable spends no attempt, so a closed breaker would let the same message
// be tried again at once, and each of up to hundreds of lanes would wait for its
// own timeout. A false alarm costs one probe interval of delay.
//
// It does not send, wait or start goroutines, and forgets a key once its
// breaker closes: memory is bounded by what is down.
package breaker

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// Interval is the time from an Unavailable to the next probe by default.
	Interval = 30 * time.Second
	// maxRetryAfter bounds the receiver's wish: no receiver may stop us for a day.
	maxRetryAfter = time.Hour
	// probeWait is how soon to ask again while a probe is out.
	probeWait = time.Second
	// probeLimit is when a probe without verdict is given up, so that a caller
	// that died between Allow and Record cannot close a channel permanently. It is
	// longer than the longest send.
	probeLimit = 5 * time.Minute
)

// Key names one thing that can be down.
type Key struct {
	Channel string // the channel's name
	Host    string // what the channel reaches; see channel.Host
}

// KeyOf returns the key under which a send of m over c is judged.
func KeyOf(c channel.Channel, m channel.Message) Key {
	return Key{Channel: c.Name(), Host: channel.Host(c, m)}
}

// Set holds the breakers of one process. The zero value is ready; it is safe
// for concurrent use.
type Set struct {
	// Probe is the time from an Unavailable to the next probe; 0: Interval.
	Probe time.Duration
	// OnChange, if set, is called with the channel whose breakers may have changed. It
	// is called without a lock held and must not block.
	OnChange func(channel string)

	mu   sync.Mutex
	down map[Key]*entry
}

// entry is a breaker that is not closed.
type entry struct {
	circuit circuitbreaker.CircuitBreaker[any]
	until   time.Time // no probe before
	probe   time.Time // when the probe that is out was allowed; zero: none is out
}

// ProbeInterval is the time between probes.
func (s *Set) ProbeInterval() time.Duration { return cmp.Or(s.Probe, Interval) }

// Allow reports whether a send may start now. Every send allowed must end in
// one Record. When it may not, wait says when to ask again; the message spends
// no attempt meanwhile.
func (s *Set) Allow(k Key) (ok bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.down[k]
	if !known {
		return true, 0
	}
	now := time.Now()
	if wait := e.until.Sub(now); wait > 0 {
		return false, wait
	}
	if !e.probe.IsZero() && now.Sub(e.probe) >= probeLimit {
		e.circuit.Open()
	}
	if e.circuit.IsOpen() {
		e.circuit.HalfOpen() // until has passed and decides; the circuit counts permits
	}
	if !e.circuit.TryAcquirePermit() {
		return false, probeWait
	}
	e.probe = now
	return true, 0
}

// Record reports how an allowed send ended. Any end but Unavailable and our
// own interruption shows that the channel answers. An error decided before the
// channel was tried says nothing about it.
func (s *Set) Record(k Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.down[k]
	fail := channel.AsError(err)
	switch {
	case fail != nil && fail.Class == channel.Unavailable:
		if e == nil {
			if s.down == nil {
				s.down = make(map[Key]*entry)
			}
			e = &entry{circuit: circuitbreaker.NewBuilder[any]().WithFailureThreshold(1).WithSuccessThreshold(1).WithDelay(s.ProbeInterval()).Build()}
			s.down[k] = e
		}
		wasOpen := e.circuit.IsOpen()
		e.circuit.RecordFailure()
		e.reopen(fail.RetryAfter, s.ProbeInterval(), wasOpen)
	case e == nil || e.probe.IsZero():
		// Closed, or a send that began before the breaker opened: what it saw
		// is older than what we know.
	case fail != nil && (fail.Class == channel.Interrupted || fail.BeforeSend):
		e.circuit.Open() // no verdict: the permit must not be lost with it
		e.reopen(probeWait, s.ProbeInterval(), false)
	default:
		e.circuit.RecordSuccess()
		delete(s.down, k)
	}
}

// reopen sets the time of the next probe. A failure that arrives while the
// breaker is open already is one of the sends that were under way: it may
// lengthen the wait, if the receiver asks for it, but never shortens it.
func (e *entry) reopen(wish, every time.Duration, wasOpen bool) {
	wait := every
	if wish > 0 {
		wait = min(max(wish, probeWait), maxRetryAfter)
	}
	until := time.Now().Add(wait)
	if wasOpen && (wish == 0 || until.Before(e.until)) {
		return
	}
	e.until, e.probe = until, time.Time{}
}

// Wait returns how long sends of k are held back, without asking for one: 0
// when Allow would answer true.
func (s *Set) Wait(k Key) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.down[k]
	if !known {
		return 0
	}
	return e.wait(time.Now())
}

func (e *entry) wait(now time.Time) time.Duration {
	if wait := e.until.Sub(now); wait > 0 {
		return wait
	}
	if e.probing(now) {
		return probeWait
	}
	return 0
}

func (e *entry) probing(now time.Time) bool {
	return !e.probe.IsZero() && now.Sub(e.probe) < probeLimit
}

// AllClosed reports whether every breaker is closed.
func (s *Set) AllClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.down) == 0
}

// Status is one breaker that is not closed.
type Status struct {
	Key     Key
	Wait    time.Duration // until it may be probed; 0: at the next send
	Probing bool          // half-open: a probe is out
}

// Down returns the breakers that are not closed, by key; for status and metrics.
func (s *Set) Down() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.down) == 0 {
		return nil
	}
	now := time.Now()
	out := make([]Status, 0, len(s.down))
	for k, e := range s.down {
		out = append(out, Status{Key: k, Wait: e.wait(now), Probing: e.probing(now)})
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.Key.Channel, b.Key.Channel), strings.Compare(a.Key.Host, b.Key.Host))
	})
	return out
}
