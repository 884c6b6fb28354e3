package delivery

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/lease"
)

// ErrClosed reports that the drain takes no more work: its lease is going back.
var ErrClosed = errors.New("drain is closed")

// Agent drains one agent under one lease.
type Agent struct {
	pool   *Pool
	id     string
	keeper *lease.Keeper

	// The two contexts are the product of a term, as Keeper.Context is: lanes
	// are started by timers and wake-ups, which have none to pass on.
	term  context.Context // ends with the lease
	sends context.Context // ends with the lease, or by Abort
	lose  context.CancelCauseFunc
	abort context.CancelFunc

	changed chan struct{} // a lane came or went, or the drain was closed

	mu      sync.Mutex
	closing bool
	lanes   map[string]*lane

	channelsMu sync.Mutex
	channels   Channels
	opened     channel.Settings
}

// Agent makes the drain of an agent whose deliver lease the keeper keeps; ctx is
// that of the keeper, for calls of the journal. It works once Run is called; the
// caller stops the keeper after that.
func (p *Pool) Agent(ctx context.Context, agentID string, keeper *lease.Keeper) *Agent {
	a := &Agent{pool: p, id: agentID, keeper: keeper, changed: make(chan struct{}, 1), lanes: make(map[string]*lane)}
	a.term, a.lose = context.WithCancelCause(ctx)
	a.sends, a.abort = context.WithCancel(a.term)
	return a
}

// Run waits for the drain's end: nil when the lease may be given back, else an
// error that wraps lease.ErrLost, or the cause that the keeper's context had.
func (a *Agent) Run() error {
	defer a.lose(context.Canceled)
	defer a.abort()
	keep := time.NewTimer(a.pool.cfg.Keep)
	defer keep.Stop()
	over, yield := a.term.Done(), a.keeper.Yield()
	for {
		select {
		case <-over:
			over = nil
			a.Close()
		case <-yield:
			yield = nil
			a.Close()
		case <-keep.C:
			a.closeIdle()
		case <-a.changed:
		}
		switch lanes, closing := a.state(); {
		case lanes > 0:
			keep.Stop()
		case closing:
			return context.Cause(a.term)
		default:
			keep.Reset(a.pool.cfg.Keep)
		}
	}
}

func (a *Agent) state() (lanes int, closing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.lanes), a.closing
}

func (a *Agent) signal() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// check returns why nothing more may be done under this lease, or nil.
func (a *Agent) check() error {
	if err := a.keeper.Check(); err != nil {
		return err
	}
	return context.Cause(a.term)
}

// Wake drains threads, or makes running lanes check once more. When the drain is
// closed the work is the next lease's.
func (a *Agent) Wake(threadIDs ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		return
	}
	for _, id := range threadIDs {
		a.wake(id)
	}
}

// wake queues the lane of a thread. The caller holds mu.
func (a *Agent) wake(threadID string) *lane {
	l := a.lanes[threadID]
	switch {
	case l == nil:
		l = &lane{agent: a, thread: threadID, state: queued}
		a.lanes[threadID] = l
		a.pool.submit(l)
		a.signal()
	case l.state == parked:
		a.resume(l)
	case l.state == running:
		l.again = true
	}
	return l
}

// resume queues a parked lane. The caller holds mu.
func (a *Agent) resume(l *lane) {
	l.timer.Stop()
	l.state = queued
	a.pool.submit(l)
}

// Counts is what a drain did for one caller.
type Counts struct{ Sent, Dead int64 }

// Deliver drains a thread up to the event head, or joins the lane that does.
// It returns at head, when nothing more can be sent now, or when ctx ends. The
// error is ErrClosed, lease.ErrLost, ErrRefused or an answer of the journal.
func (a *Agent) Deliver(ctx context.Context, threadID string, head int64) (Counts, error) {
	w := &waiter{head: head, done: make(chan struct{})}
	a.mu.Lock()
	if a.closing {
		a.mu.Unlock()
		return Counts{}, ErrClosed
	}
	l := a.wake(threadID)
	l.waiters = append(l.waiters, w)
	a.mu.Unlock()
	select {
	case <-w.done:
		return w.counts, w.err
	case <-ctx.Done():
		a.mu.Lock()
		defer a.mu.Unlock()
		if l.leave(w) {
			w.err = context.Cause(ctx)
		}
		return w.counts, w.err
	}
}

// Close lets the send of each lane finish and begins no other; Run returns
// after the last one. Closing twice is fine.
func (a *Agent) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.close()
}

func (a *Agent) closeIdle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lanes) == 0 {
		a.close()
	}
}

func (a *Agent) close() {
	a.closing = true
	for _, l := range a.lanes {
		if l.state == parked {
			a.resume(l) // it ends, or records what it still has to
		}
	}
	a.signal()
}

// Abort closes and stops the sends under way.
func (a *Agent) Abort() {
	a.Close()
	a.abort()
}

// run lets a lane work in the place it got.
func (a *Agent) run(l *lane) {
	a.mu.Lock()
	l.state, l.again = running, false
	a.mu.Unlock()
	a.settle(l, l.work())
}

// settle puts a lane where its run says.
func (a *Agent) settle(l *lane, v verdict) {
	if errors.Is(v.err, lease.ErrLost) {
		a.lose(v.err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// What the journal has yet to learn is worth waiting for while draining.
	owed := l.unrecorded != nil && v.wait > 0 && a.sends.Err() == nil
	switch {
	case a.term.Err() != nil:
		a.drop(l, context.Cause(a.term))
	case a.closing && l.due != nil: // begun, and not sent yet: it is put back
		l.state = queued
		a.pool.submit(l)
	case a.closing && !owed:
		if v.err == nil && (v.yield || l.again) {
			v.err = ErrClosed
		}
		a.drop(l, v.err)
	case !a.closing && (v.yield || l.again):
		l.state = queued
		a.pool.submit(l)
	case v.wait > 0:
		l.state = parked
		l.timer = time.AfterFunc(v.wait, func() { a.expired(l) })
		l.answer(v.err)
	default:
		a.drop(l, v.err)
	}
}

// expired is a parked lane's timer.
func (a *Agent) expired(l *lane) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.state == parked {
		a.resume(l)
	}
}

func (a *Agent) drop(l *lane, err error) {
	delete(a.lanes, l.thread)
	l.answer(err)
	a.signal()
}

// open returns the channels of these settings, and opens them only when the
// configuration changed.
func (a *Agent) open(s channel.Settings) (Channels, error) {
	a.channelsMu.Lock()
	defer a.channelsMu.Unlock()
	if a.channels != nil && reflect.DeepEqual(a.opened, s) {
		return a.channels, nil
	}
	w, err := a.pool.Open(s)
	if err != nil {
		return nil, err
	}
	a.channels, a.opened = w, s
	return w, nil
}
