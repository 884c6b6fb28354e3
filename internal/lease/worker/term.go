package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Term is one lease of one agent, from its grant to its end.
type Term[W Work] struct {
	// Work is what runs under the lease.
	Work W

	worker  *Worker[W]
	agentID string
	token   uint64
	cancel  context.CancelFunc // of what precedes the work
	ready   chan struct{}      // closed when Work is set
	done    chan struct{}      // closed when the lease was given back or is lost

	// Guarded by the worker's mu.
	begun, closed bool
	woken         bool
	owed          []string // threads that became due before the work began
}

// Done is closed when the lease was given back or is lost.
func (t *Term[W]) Done() <-chan struct{} { return t.done }

// Closed reports whether Close was called.
func (t *Term[W]) Closed() bool {
	t.worker.mu.Lock()
	defer t.worker.mu.Unlock()
	return t.closed
}

// Close lets the work under way finish; then the lease is given back.
func (t *Term[W]) Close() {
	t.worker.mu.Lock()
	defer t.worker.mu.Unlock()
	t.closed = true
	if t.begun {
		t.Work.Close()
	} else {
		t.cancel()
	}
}

// abort stops the work; the term is closed already.
func (t *Term[W]) abort() {
	t.worker.mu.Lock()
	defer t.worker.mu.Unlock()
	if t.begun {
		t.Work.Abort()
	}
}

// wakeLocked wakes the work, now or when it begins.
func (t *Term[W]) wakeLocked(threads []string) {
	if t.begun {
		t.Work.Wake(threads...)
		return
	}
	t.woken = true
	t.oweLocked(threads)
}

// oweLocked keeps threads for work that begins soon, and is not woken for less.
func (t *Term[W]) oweLocked(threads []string) {
	t.owed = append(t.owed, threads...)
	t.woken = t.woken || len(t.owed) > 0
}

// startLocked starts the term of a grant. The caller has seen that there is none with
// this token; one with another token ends first.
func (w *Worker[W]) startLocked(base context.Context, id string, l *registrypb.Lease, sent time.Time) *Term[W] {
	ctx, cancel := context.WithCancel(base)
	t := &Term[W]{worker: w, agentID: id, token: l.GetToken(), cancel: cancel, ready: make(chan struct{}), done: make(chan struct{})}
	t.oweLocked(w.owed[id])
	delete(w.owed, id)
	before := w.terms[id]
	w.terms[id], w.all[t] = t, struct{}{}
	w.changedLocked()
	w.wg.Go(func() {
		defer w.forget(t)
		defer cancel()
		if before != nil {
			before.Close() // its lease is lost, which it is about to notice
			<-before.done
		}
		w.run(ctx, base, t, l, sent)
	})
	return t
}

func (w *Worker[W]) forget(t *Term[W]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, t)
	if w.terms[t.agentID] == t {
		delete(w.terms, t.agentID)
	}
	close(t.done)
	w.changedLocked()
}

// run works under a lease until there is a reason to give it back. ctx ends when the
// term is closed before its work begins.
func (w *Worker[W]) run(ctx, base context.Context, t *Term[W], l *registrypb.Lease, sent time.Time) {
	log := w.deps.Logger.With("agent_id", t.agentID, "fencing_token", t.token)
	renew := renewer[W]{w, t}
	g := lease.Grant{Resource: l.GetResource(), Token: t.token, TTL: l.GetTtl().AsDuration(), Sent: sent}
	orDefault(&g.TTL, lease.DefaultTTL)
	// A long poll may return when much of the trust in its grant has passed. The
	// Keeper would renew it now; the work must not begin before.
	if time.Since(g.Sent) >= g.TTL/3 && ctx.Err() == nil {
		g.Sent = time.Now()
		call, cancel := context.WithTimeout(ctx, g.TTL/3)
		_, err := renew.Renew(call, g.Resource, g.Token)
		cancel()
		if err != nil && ctx.Err() == nil {
			log.Warn("lease not usable", "error", fault.Chain(err))
		}
		if errors.Is(err, lease.ErrLost) {
			return
		}
		if err != nil {
			w.release(base, t.agentID, l)
			return
		}
	}
	if ctx.Err() != nil {
		w.release(base, t.agentID, l)
		return
	}
	keeper := lease.Keep(base, renew, g, lease.Options{OnError: func(err error) {
		log.Debug("lease not renewed", "error", fault.Chain(err))
	}})
	w.begin(t, w.deps.Begin(t.agentID, keeper))
	log.Debug("lease taken")
	err := t.Work.Run()
	keeper.Stop()
	if err != nil {
		log.Warn("work under lease ended", "error", fault.Chain(err))
	}
	if errors.Is(err, lease.ErrLost) {
		return
	}
	w.release(base, t.agentID, l)
	log.Debug("lease given back")
}

// begin publishes the work of a term.
func (w *Worker[W]) begin(t *Term[W], work W) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Work, t.begun = work, true
	close(t.ready)
	if t.closed { // meanwhile
		work.Close()
	} else if t.woken {
		work.Wake(t.owed...)
	}
}

// release gives a lease back.
func (w *Worker[W]) release(ctx context.Context, agentID string, l *registrypb.Lease) {
	if err := release(ctx, w.deps.Leases, l); err != nil {
		w.deps.Logger.Warn("lease not released", "agent_id", agentID, "fencing_token", l.GetToken(), "error", fault.Chain(err))
	}
}

// release gives a lease back, also when ctx has ended. One that is lost is as good as given back.
func release(ctx context.Context, leases Leases, l *registrypb.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	_, err := leases.ReleaseLease(ctx, &registrypb.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()})
	if fault.Is(err, fault.LeaseLost) {
		return nil
	}
	return err
}

// renew gives a lease one more ttl. An error that wraps lease.ErrLost is final.
func renew(ctx context.Context, leases Leases, resource, holder string, token uint64) (*registrypb.RenewLeaseResponse, error) {
	a, err := leases.RenewLease(ctx, &registrypb.RenewLeaseRequest{Resource: resource, Token: token, Holder: holder})
	if fault.Is(err, fault.LeaseLost) {
		return nil, fmt.Errorf("renew lease: %w: %w", lease.ErrLost, err)
	}
	if err != nil {
		return nil, fmt.Errorf("renew lease: %w", err)
	}
	return a, nil
}

// renewer carries the renewals of a term to the registry.
type renewer[W Work] struct {
	w *Worker[W]
	t *Term[W]
}

// Renew implements lease.Renewer.
func (r renewer[W]) Renew(ctx context.Context, resource string, token uint64) (lease.RenewReply, error) {
	a, err := renew(ctx, r.w.deps.Leases, resource, r.w.cfg.Holder, token)
	if err != nil {
		return lease.RenewReply{}, err
	}
	if runs := a.GetAbortRunIds(); len(runs) > 0 && r.w.deps.EndRuns != nil {
		select {
		case <-r.t.ready:
			r.w.deps.EndRuns(r.t.Work, runs)
		default: // nothing is worked on yet: the next renewal says it again
		}
	}
	return lease.RenewReply{TTL: a.GetTtl().AsDuration(), YieldRequested: a.GetYieldRequested()}, nil
}
