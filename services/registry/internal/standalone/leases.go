package standalone

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/authority"
	"github.com/theclaw/agents/internal/store"
)

const (
	// deadHolderInterval is how often leases are checked for dead holders: a death ends a long
	// poll, or is not reported at all.
	deadHolderInterval = time.Second
	idle               = time.Minute
)

// Leases is the table for workers: a run lease comes with the agent's run.lock, so that an
// agent is never leased while a foreign program works on it.
type Leases struct {
	authority.Authority
	of      *Registry
	files   runLocks
	changed chan struct{} // see Changed
	again   atomic.Bool   // waiting polls will be repeated
}

// Acquire is that of the authority.
func (l *Leases) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Record, error) {
	id := lease.AgentOf(req.Resource)
	if id == "" {
		rec, err := l.Authority.Acquire(ctx, req)
		if err == nil {
			l.recheck()
		}
		return rec, err
	}
	if l.of.isBlocked(id) {
		return lease.Record{}, &lease.HeldError{Resource: req.Resource, Holder: "its removal", RetryAfter: idle}
	}
	if req.Resource == lease.AgentResource(id) {
		// Before the grant: a refusal must not use up a token.
		if err := l.takeRunLock(id); err != nil {
			return lease.Record{}, err
		}
	}
	rec, err := l.Authority.Acquire(ctx, req)
	if err != nil {
		l.dropRunLock(ctx, id)
		return rec, err
	}
	l.recheck() // its end is on the loop's clock from now on
	l.of.Wakes.Granted(id)
	return rec, nil
}

// Release releases a lease. Turns that have not ended do not count as crashes then.
func (l *Leases) Release(ctx context.Context, resource string, token uint64) error {
	id := lease.AgentOf(resource)
	if resource == lease.AgentResource(id) && l.Check(ctx, resource, token) == nil {
		if a, err := l.of.Get(id); err == nil {
			for t, keys := range a.TakeClaims() {
				if err := l.of.Engine.ResetCrashes(ctx, store.Ref{Agent: id, Thread: t}, keys); err != nil {
					l.of.log.Warn("claims not released", "agent_id", id, "thread_id", t, "error", err)
				}
			}
		}
	}
	if err := l.Authority.Release(ctx, resource, token); err != nil {
		l.of.log.Warn("release not saved", "agent_id", id, "error", err)
	}
	return nil
}

// Reap ends the terms that are over; next is when to call it again.
func (l *Leases) Reap(ctx context.Context) (ended []lease.Record, next time.Duration, err error) {
	ended, next, err = l.Authority.Reap(ctx)
	for _, r := range ended {
		l.of.lapses.Note(r.Holder)
	}
	if live, err := l.List(ctx, "", math.MaxInt); err == nil {
		l.of.metrics.Leases.WithLabelValues("held").Set(float64(len(live)))
	}
	if next > 0 {
		return ended, min(max(next, 10*time.Millisecond), deadHolderInterval), err
	}
	return ended, idle, err
}

// Changed receives when Reap is due before its time: there is a new term, or a holder may
// have died.
func (l *Leases) Changed() <-chan struct{} { return l.changed }

func (l *Leases) recheck() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *Leases) takeRunLock(id string) error {
	dir, err := l.of.home.Agent(id)
	if err != nil {
		return err
	}
	err = l.files.take(id, dir.RunLock())
	if _, held := errors.AsType[*lease.HeldError](err); held {
		l.offerAgain(runLockRetry)
	}
	return err
}

// dropRunLock gives run.lock back unless the agent is leased.
func (l *Leases) dropRunLock(ctx context.Context, id string) {
	if _, live, _ := l.Get(ctx, lease.AgentResource(id)); live {
		return
	}
	if err := l.files.release(id); err != nil {
		l.of.log.Warn("run.lock not removed", "agent_id", id, "error", err)
	}
}

// offerAgain makes waiting workers try again after a while: nothing reports that there is
// disk space again, or that a foreign program, or a child that a killed process was just
// starting, has released a run.lock. One such retry is pending at a time.
func (l *Leases) offerAgain(after time.Duration) {
	if l.again.CompareAndSwap(false, true) {
		time.AfterFunc(after, func() {
			l.again.Store(false)
			l.of.runs.Wake()
		})
	}
}
