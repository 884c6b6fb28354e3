package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// start is a grant on its way to Run.
type start[W Work] struct {
	agentID string
	lease   *registrypb.Lease
	sent    time.Time
	reply   chan *Term[W]
}

// Take returns the term of an agent, of which the work has begun, and acquires the
// lease where none is held. The work may end at any time: a caller that finds it
// closed waits for Done and takes again.
// Errors: ErrEnding in a drain; that ctx ended; else the registry's, such as
// LEASE_HELD for a lease of another process.
func (w *Worker[W]) Take(ctx context.Context, agentID string) (*Term[W], error) {
	for failures := 0; ; failures++ {
		select {
		case <-w.stopped:
			return nil, ErrEnding
		default:
		}
		w.mu.Lock()
		t, changed := w.terms[agentID], w.changed
		if t != nil && t.closed { // ending: wait for the release
			w.mu.Unlock()
			if err := await(ctx, changed); err != nil {
				return nil, err
			}
			continue
		}
		if t == nil {
			w.asking[agentID]++
		}
		w.mu.Unlock()
		if t == nil {
			var held bool
			var err error
			t, held, err = w.acquire(ctx, agentID)
			changed = w.asked(agentID)
			switch {
			case held: // by this process: its term is about to start or to end
				wait, cancel := context.WithTimeout(ctx, backoff.Wait(failures))
				_ = await(wait, changed)
				cancel()
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				continue
			case err != nil:
				return nil, err
			}
		}
		select {
		case <-t.ready:
			return t, nil
		case <-t.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// asked ends the asking for a lease. When it was the last call and got none, what is
// owed becomes due again with the end of the lease that it belongs to.
func (w *Worker[W]) asked(agentID string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking[agentID]--; w.asking[agentID] == 0 {
		delete(w.asking, agentID)
		delete(w.owed, agentID)
	}
	return w.changed
}

// acquire asks for the lease of an agent and starts its term. held says that this
// process has it already.
func (w *Worker[W]) acquire(ctx context.Context, agentID string) (t *Term[W], held bool, err error) {
	s := start[W]{agentID: agentID, sent: time.Now(), reply: make(chan *Term[W], 1)}
	r, err := w.deps.Leases.AcquireLease(ctx, &registrypb.AcquireLeaseRequest{
		Kind: w.cfg.Kind, AgentId: agentID, Holder: w.cfg.Holder, Address: w.cfg.Address,
		RequestId: ulid.Make().String(), Ttl: durationpb.New(w.cfg.TTL),
	})
	if err != nil {
		f := fault.From(err)
		return nil, f.Reason == fault.LeaseHeld && f.Meta["holder"] == w.cfg.Holder, fmt.Errorf("acquire lease: %w", err)
	}
	s.lease = r.GetLease()
	select {
	case w.starts <- s:
		return <-s.reply, false, nil
	case <-w.stopped:
		err = ErrEnding
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	w.release(ctx, agentID, s.lease)
	return nil, false, err
}

// granted starts the term of a grant that Take got, unless the poll has got it too.
func (w *Worker[W]) granted(base context.Context, s start[W]) *Term[W] {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.terms[s.agentID]; t != nil && t.token == s.lease.GetToken() {
		return t
	}
	return w.startLocked(base, s.agentID, s.lease, s.sent)
}

func await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c:
		return nil
	}
}
