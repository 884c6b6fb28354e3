package delivery

import (
	"errors"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/services/deliverer/internal/breaker"
)

// burst is how many messages a lane sends before it lets others have its place.
const burst = 32

// backoff is before the journal is called again.
var backoff = pause.Backoff{First: 50 * time.Millisecond, Last: 2 * time.Second}

type laneState uint8

const (
	queued laneState = iota
	running
	parked
)

// lane is one thread being drained.
type lane struct {
	agent  *Agent
	thread string

	// Guarded by the agent's mu.
	state   laneState
	again   bool // woken during this run
	timer   *time.Timer
	waiters []*waiter

	// Only the run touches these; runs of one lane follow each other.
	due        *Due           // begun and not sent
	permit     breaker.Permit // for due, if the breaker was asked before
	unrecorded *record        // sent, and not in the journal
	failures   int            // journal calls that failed in a row
	shut       breaker.Key    // what was down when last asked
}

// record is a Finish with what only we need of it.
type record struct {
	Finish
	took time.Duration
	flag bool // the send carried the duplicate flag
	// account of the home by which it was sent; empty: another channel.
	account string
	span    tracing.Span
	rest    *Due // what is left to send of a message in parts
	left    bool // it has left completely, and its end is recorded later
}

// verdict is how a run of a lane ended: with neither yield nor wait it is over.
type verdict struct {
	yield bool          // back to the end of the queue
	wait  time.Duration // park
	err   error         // for those who wait, and the end of the term
}

// waiter is a call that joined a lane. counts and err are guarded by the
// agent's mu until done is closed.
type waiter struct {
	head   int64
	counts Counts
	err    error
	done   chan struct{}
}

// answer ends the calls that joined. The caller holds the agent's mu.
func (l *lane) answer(err error) {
	for _, w := range l.waiters {
		w.err = err
		close(w.done)
	}
	l.waiters = nil
}

// leave takes a caller out that waits no more; false: it has its answer.
func (l *lane) leave(w *waiter) bool {
	i := slices.Index(l.waiters, w)
	if i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	return i >= 0
}

// work sends until there is a reason not to.
func (l *lane) work() verdict {
	defer l.permit.Release()
	for sends := 0; ; sends++ {
		if l.unrecorded != nil {
			if v, ok := l.record(sends < burst); !ok {
				return v
			}
		}
		if l.due == nil {
			if l.agent.isClosing() {
				return verdict{err: ErrClosed}
			}
			if sends >= burst {
				return verdict{yield: true}
			}
			if v, ok := l.begin(); !ok {
				return v
			}
		}
		if v, ok := l.send(); !ok {
			return v
		}
	}
}

// wake lets a lane go on that waits for another send to its destination to end.
func (l *lane) wake() {
	a := l.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	switch l.state {
	case parked:
		a.resume(l)
	case running: // it has not parked yet
		l.again = true
	}
}

func (a *Agent) isClosing() bool {
	_, closing := a.state()
	return closing
}

// begin sets due to a delivery whose attempt is counted.
func (l *lane) begin() (verdict, bool) {
	p := l.agent.pool
	if !p.Breakers.AllClosed(l.agent.id) {
		if wait := p.Breakers.Wait(l.shut); wait > 0 {
			return verdict{wait: wait}, false
		}
		due, v, ok := l.ask(true)
		if !ok {
			return v, false
		}
		if w := l.target(due); w.channel != nil {
			var wait time.Duration
			if l.permit, wait = p.Breakers.Acquire(w.key, l, l.wake); !l.permit.For(w.key) {
				l.shut = w.key
				return verdict{wait: wait}, false
			}
		}
	}
	due, v, ok := l.ask(false)
	if !ok {
		return v, false
	}
	l.due = &due
	return verdict{}, true
}

// ask calls Begin; ok is true when there is an event to send.
func (l *lane) ask(peek bool) (Due, verdict, bool) {
	if err := l.agent.check(); err != nil {
		return Due{}, verdict{err: err}, false
	}
	due, err := l.agent.pool.Journal.Begin(l.agent.term, l.agent.id, l.thread, peek)
	if err != nil {
		return Due{}, l.trouble("begin delivery", err), false
	}
	l.failures = 0
	v, ok := follow(due)
	return due, v, ok
}

// follow reads what the journal answered; ok is true for an event to send.
func follow(due Due) (v verdict, ok bool) {
	switch due.Found {
	case Send:
		return verdict{}, true
	case Wait:
		return verdict{wait: max(due.Wait, time.Millisecond)}, false
	default:
		return verdict{}, false
	}
}

// record journals the outcome of the last send; ok is true when the
// lane goes on at once.
func (l *lane) record(more bool) (verdict, bool) {
	a, r := l.agent, l.unrecorded
	if err := a.check(); err != nil {
		return verdict{err: err}, false
	}
	f := r.Finish
	// What was just sent shows that its channel is up, whatever else is down.
	f.Next = more && r.rest == nil && f.Outcome != Unavailable && !a.isClosing()
	done, err := a.pool.Journal.Finish(r.span.Within(a.term), a.id, l.thread, f)
	if err != nil {
		v := l.trouble("finish delivery", err)
		if v.wait == 0 {
			l.unrecorded = nil // it will never be accepted
		}
		return v, false
	}
	l.unrecorded, l.failures = nil, 0
	l.count(r, done.Dead)
	switch {
	case r.rest != nil:
		l.due = r.rest
		return verdict{}, true
	case f.Outcome == Unavailable:
		return verdict{wait: max(f.RetryAfter, time.Millisecond)}, false
	case done.Next == nil:
		return verdict{}, true
	}
	v, ok := follow(*done.Next)
	if ok {
		l.due = done.Next
	}
	return v, ok
}

// trouble decides how a lane goes on after the journal failed.
func (l *lane) trouble(what string, err error) verdict {
	if lost := l.agent.check(); lost != nil {
		return verdict{err: lost}
	}
	switch {
	case errors.Is(err, lease.ErrLost):
		return verdict{err: err}
	case errors.Is(err, ErrRefused):
		l.log(what+" refused", err)
		return verdict{err: err}
	}
	if l.failures == 0 {
		l.log(what+" failed, will be repeated", err)
	}
	l.failures++
	return verdict{wait: backoff.Wait(l.failures - 1), err: err}
}

func (l *lane) log(what string, err error) {
	l.agent.pool.Logger.Warn(what, obs.KeyAgentID, l.agent.id, obs.KeyThreadID, l.thread, "error", err)
}

// count adds a recorded send to metrics and to the calls that joined.
func (l *lane) count(r *record, dead bool) {
	word := "retry"
	switch {
	case r.Outcome == Part && !r.flag:
		word = "part"
	case dead:
		word = "dead"
	case (r.Outcome == Sent || r.Outcome == Part) && r.flag:
		word = "maybe_duplicate"
	case r.Outcome == Sent:
		word = "sent"
	}
	if r.account != "" && (r.Outcome == Sent || r.Outcome == Part) {
		l.agent.pool.addSent(r.account)
	}
	if r.Outcome != Skipped && !r.left {
		l.agent.pool.Metrics.ObserveDelivery(r.Channel, word, r.took)
	}
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	settled := dead || r.Outcome == Sent || r.Outcome == Skipped
	for _, w := range slices.Clone(l.waiters) {
		if r.Outcome == Sent {
			w.counts.Sent++
		}
		if dead {
			w.counts.Dead++
		}
		if settled && w.head > 0 && r.EventID >= w.head {
			l.leave(w)
			close(w.done)
		}
	}
}
