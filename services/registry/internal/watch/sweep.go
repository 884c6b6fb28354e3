package watch

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/core"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// sweepLoop looks at every inbox at the start and then once per interval. The
// first round reads only what has changed since the last run: the others are
// known from registry.db.
func (w *Watch) sweepLoop(ctx context.Context) {
	w.Recall(ctx, w.Add)
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		w.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep finds what no watch and no call has told: pushes by other programs,
// directories that came, went or broke, and work that lost its mark.
func (w *Watch) sweep(ctx context.Context) {
	w.sweeping.Lock()
	defer w.sweeping.Unlock()
	if err := w.Rescan(); err != nil {
		w.Log.Error("agents not scanned", "error", err)
	}
	w.Dir.Each(ctx, func(a *directory.Agent) {
		if _, live, _ := w.Leases.Get(ctx, lease.AgentResource(a.ID)); !live {
			a.Rest()
		}
		path, err := w.Dir.Path(store.Inbox(a.ID))
		if err != nil {
			core.Trouble(a, err)
			return
		}
		if sig := directory.Stamp(path); sig != a.Signature() || !a.Known().Loaded || a.Troubled() {
			open := w.Embedded.IsOpen(store.Inbox(a.ID))
			if err := w.lookAt(ctx, a, sig); err != nil && ctx.Err() == nil {
				w.Log.Warn("inbox not read", "agent_id", a.ID, "error", err)
				return
			}
			if !open && !a.HasWork() { // only read: a thousand of these need not stay open
				w.Embedded.Forget(func(r store.Ref) bool { return r == store.Inbox(a.ID) })
			}
		}
		w.MarkDue(a)
	})
	w.Metrics.OpenDatabases.Set(float64(w.Embedded.Open()))
	if free, err := w.FreeDisk(); err == nil {
		w.Metrics.DiskFree.Set(float64(free))
	}
	st := w.Embedded.Stats()
	durable, lazy := st.Durable, st.Lazy
	w.Metrics.Commits.WithLabelValues("full").Add(float64(durable - w.counted[0]))
	w.Metrics.Commits.WithLabelValues("lazy").Add(float64(lazy - w.counted[1]))
	w.counted = [2]int64{durable, lazy}
}

// look asks for an inbox to be read soon; the sweep finds what is dropped here.
func (w *Watch) look(agentID string) {
	select {
	case w.looks <- agentID:
	default:
	}
}

// lookLoop reads inboxes that another program may have written.
func (w *Watch) lookLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-w.looks:
			a, err := w.Dir.Get(id)
			if err != nil {
				continue
			}
			path, err := w.Dir.Path(store.Inbox(id))
			if err != nil {
				continue
			}
			sig := directory.Stamp(path)
			if a.AsLeft(sig) && a.Known().Loaded && !a.Troubled() {
				continue
			}
			if err := w.lookAt(ctx, a, sig); err != nil && ctx.Err() == nil {
				w.Log.Warn("inbox not read", "agent_id", id, "error", err)
			}
		}
	}
}

// lookAt reads the head of an inbox and makes the agent due if it has risen. Our
// own writes come by here too and are dropped by the head they are known under.
func (w *Watch) lookAt(ctx context.Context, a *directory.Agent, sig string) error {
	if !a.Known().Loaded || a.Troubled() { // reading it whole also finds that it is well again
		if err := w.Load(ctx, a); err != nil {
			return err
		}
		return w.reconcile(ctx, a)
	}
	p, err := w.Store.Read(ctx, store.Inbox(a.ID), store.Query{After: 1<<62 - 1, Limit: 1})
	if err != nil {
		err = w.Fault(a.ID, thread.Inbox, err)
		if !errors.Is(err, context.Canceled) {
			core.Trouble(a, err)
		}
		return err
	}
	a.Sign(sig)
	w.Found(a, p.Head)
	return nil
}

// reconcile makes the subscription agree with the desired state.
func (w *Watch) reconcile(ctx context.Context, a *directory.Agent) error {
	st, err := w.Store.State(ctx, a.ID)
	if err != nil || st.Started == st.Subscribed {
		return err
	}
	_, err = w.Store.SetStarted(ctx, a.ID, st.Started, core.Handler(a.ID))
	return err
}
