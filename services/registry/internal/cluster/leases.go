package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/authority"
	"github.com/theclaw/agents/internal/store"
)

const (
	// deadHolderInterval is how often leases are checked for dead holders: a death ends a long
	// poll, or is not reported at all.
	deadHolderInterval = time.Second
	// idle is about the interval of Reap without leases: other registries do not announce grants.
	idle = 2 * time.Second
)

// Leases is the table of the database for workers.
type Leases struct {
	authority.Authority
	of      *Registry
	changed chan struct{} // see Changed
}

// Acquire is that of the authority.
func (l *Leases) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Record, error) {
	rec, err := l.Authority.Acquire(ctx, req)
	if err != nil {
		return rec, err
	}
	l.recheck() // its end is on the loop's clock from now on
	if id := lease.AgentOf(req.Resource); id != "" {
		l.of.Wakes.Granted(id)
	}
	return rec, nil
}

// Reap ends the terms that are over and announces their holders; next is when to call it
// again.
func (l *Leases) Reap(ctx context.Context) (ended []lease.Record, next time.Duration, err error) {
	ended, next, err = l.Authority.Reap(ctx)
	for _, r := range ended {
		l.of.lapses.Note(r.Holder)
		l.of.notify(store.NoticeLapse, r.Holder)
	}
	if next > 0 {
		return ended, min(max(next, 10*time.Millisecond), deadHolderInterval), err
	}
	return ended, idle/2 + rand.N(idle), err
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
