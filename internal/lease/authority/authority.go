// Package authority declares what a registry needs of an authority on leases, wherever the
// leases are stored: in this process above a ledger (lease.Table), or in a database that
// several registries share. The promises are those of package lease; leasetest checks them.
package authority

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/lease"
)

// Authority grants, checks and ends leases. Besides lease.ErrLost and *lease.HeldError, which
// are final, a call may answer that the authority cannot be reached: then nothing is
// known, and the caller asks again.
type Authority interface {
	Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Record, error)
	Renew(ctx context.Context, resource, holder string, token uint64) (lease.Record, error)
	// Check is for what writes nothing: a write has its fence.
	Check(ctx context.Context, resource string, token uint64) error
	Release(ctx context.Context, resource string, token uint64) error
	// Get returns the last term of a resource and whether it is live.
	Get(ctx context.Context, resource string) (lease.Record, bool, error)
	// List returns the live terms after a resource, at most limit, in order.
	List(ctx context.Context, after string, limit int) ([]lease.Record, error)
	// Reap ends the terms that are over and returns each once; next is how long until
	// the first live one ends if nobody renews it, 0 when there is none.
	Reap(ctx context.Context) (ended []lease.Record, next time.Duration, err error)
	RequestYield(ctx context.Context, resource string) (bool, error)
}

// Of is the table of this process as an authority.
func Of(t *lease.Table) Authority { return own{t} }

type own struct{ t *lease.Table }

func (e own) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Record, error) {
	return e.t.Acquire(ctx, req)
}

func (e own) Renew(_ context.Context, resource, holder string, token uint64) (lease.Record, error) {
	return e.t.Renew(resource, holder, token)
}

func (e own) Check(_ context.Context, resource string, token uint64) error {
	return e.t.Check(resource, token)
}

func (e own) Release(ctx context.Context, resource string, token uint64) error {
	return e.t.Release(ctx, resource, token)
}

func (e own) Get(_ context.Context, resource string) (lease.Record, bool, error) {
	r, live := e.t.Get(resource)
	return r, live, nil
}

func (e own) List(_ context.Context, after string, limit int) ([]lease.Record, error) {
	all := e.t.List()
	for len(all) > 0 && all[0].Resource <= after {
		all = all[1:]
	}
	return all[:min(len(all), limit)], nil
}

func (e own) Reap(ctx context.Context) ([]lease.Record, time.Duration, error) {
	ended := e.t.Reap(ctx)
	at, ok := e.t.NextExpiry()
	if !ok {
		return ended, 0, nil
	}
	return ended, max(time.Until(at), time.Millisecond), nil
}

func (e own) RequestYield(_ context.Context, resource string) (bool, error) {
	return e.t.RequestYield(resource), nil
}
