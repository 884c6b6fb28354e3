package relocate

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

const (
	// patience is how long a move waits for who holds the agent: who lives hears of the
	// wish with his next renewal, and the lease of one who does not ends by itself.
	patience = 30 * time.Second
	// again is when the wish is told once more.
	again = 250 * time.Millisecond
	// ours is how long leases last that are taken until the rows are held.
	ours = 5 * time.Second
)

// freed takes the leases of a stopped agent from those that hold them, so that none comes
// back before the rows are held: replies that wait are due again when they are given up.
// An agent that nobody holds is left as it is. back gives them back where they were.
func (m Move) freed(ctx context.Context) (back func() error, err error) {
	var taken []lease.Record
	table := leases.New(m.Set, func(string) bool { return false })
	back = func() error {
		var err error
		for _, l := range taken {
			if gone := table.Release(context.WithoutCancel(ctx), l.Resource, l.Token); !errors.Is(gone, lease.ErrLost) {
				err = errors.Join(err, gone)
			}
		}
		return err
	}
	held, started := false, false
	if err := m.Set.Of(m.Agent).QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM lease WHERE agent_id = $1 AND NOT released AND expires_at > clock_timestamp()),
		EXISTS (SELECT 1 FROM thread WHERE agent_id = $1 AND thread_id = 'inbox' AND desired = 'started')`, m.Agent).Scan(&held, &started); err != nil {
		return back, unit.Problem(err)
	}
	if !held || started {
		return back, nil // who is started is refused where the rows are held
	}
	end := time.Now().Add(patience)
	for _, res := range []string{lease.AgentResource(m.Agent), lease.DeliverResource(m.Agent)} {
		l, err := m.take(ctx, table, res, end)
		if err != nil {
			return back, errors.Join(err, back())
		}
		taken = append(taken, l)
	}
	return back, nil
}

// take waits for a lease, and asks its holder for it.
func (m Move) take(ctx context.Context, table *leases.Table, resource string, end time.Time) (lease.Record, error) {
	for {
		l, err := table.Acquire(ctx, lease.AcquireRequest{Resource: resource, Holder: m.name, RequestID: m.name, TTL: ours})
		other, busy := errors.AsType[*lease.HeldError](err)
		if !busy {
			return l, err
		}
		if time.Now().After(end) {
			return l, fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+m.Agent+"' is stopped, and "+other.Holder+" still works on it", "try again when that has ended; see 'agentctl lease list'")
		}
		if _, err := table.RequestYield(ctx, resource); err != nil && !errors.Is(err, store.ErrNotFound) {
			return l, err
		}
		if err := pause.For(ctx, again); err != nil {
			return l, err
		}
	}
}
