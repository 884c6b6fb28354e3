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
	// deadHolderInterval is how often dead holders are looked for: a death announces itself by
	// the end of a long poll, or not at all.
	deadHolderInterval = time.Second
	// idle is how long Reap rests at about: the others do not tell of grants.
	idle = 2 * time.Second
)

// Leases is the table of the database as workers see it.
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
	l.of.Wakes.Granted(lease.AgentOf(req.Resource))
	return rec, nil
}

// Reap ends the terms that are over, and tells whose they were; next is when to look
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
