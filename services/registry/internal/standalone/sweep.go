package standalone

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// sweepLoop checks every inbox at the start and then once per interval. The
// first round reads only what has changed since the last run: the others are
// known from registry.db.
func (w *watch) sweepLoop(ctx context.Context) {
	w.r.recall(ctx, w.add)
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	w.sweep(ctx)
	w.clean(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.sweep(ctx)
		w.sweepHolders()
	}
}

// clean removes the files of writes that an earlier process did not finish.
func (w *watch) clean(ctx context.Context) {
	// A file system that keeps coarse times gives a new file a slightly older one.
	const slack = 100 * time.Millisecond
	w.r.Agents.ForEach(ctx, func(a *state.Agent) {
		dir, err := w.r.home.Agent(a.ID)
		if err == nil {
			err = dir.Clean(time.Since(w.begun) + slack) // now: a write of this process may be under way
		}
		if err != nil && !w.r.Missing(a.ID) {
			w.r.log.Warn("files of interrupted writes not removed", "agent_id", a.ID, "error", err)
		}
	})
}

// sweepHolders removes the lock files of processes that have ended without removing them.
// By the first tick their leases have ended: the file of a dead holder proves its death.
func (w *watch) sweepHolders() {
	if _, err := lease.SweepHolders(w.r.home.HoldersDir()); err != nil {
		w.r.log.Warn("lock files of dead holders not removed", "error", err)
	}
}

// sweep finds what no watch and no call has reported: pushes by other programs,
// directories that came, went or broke, and work that lost its mark.
func (w *watch) sweep(ctx context.Context) {
	w.sweeping.Lock()
	defer w.sweeping.Unlock()
	if err := w.rescan(); err != nil {
		w.r.log.Error("agents not scanned", "error", err)
	}
	w.r.Agents.ForEach(ctx, func(a *state.Agent) {
		if _, live, _ := w.r.Table.Get(ctx, lease.AgentResource(a.ID)); !live {
			a.DropSettings()
		}
		path, err := w.r.Path(store.Inbox(a.ID))
		if err != nil {
			a.SetError(err)
			return
		}
		if sig := state.Stamp(path); sig != a.Signature() || !a.Known().Loaded || a.HasProblem() {
			open := w.r.Engine.IsOpen(store.Inbox(a.ID))
			if err := w.readInbox(ctx, a, sig); err != nil && ctx.Err() == nil {
				w.r.log.Warn("inbox not read", "agent_id", a.ID, "error", err)
				return
			}
			if !open && !a.HasWork() { // only read: a thousand of these need not stay open
				w.r.Engine.Forget(func(r store.Ref) bool { return r == store.Inbox(a.ID) })
			}
		}
		w.r.MarkDue(a)
	})
	w.r.metrics.OpenDatabases.Set(float64(w.r.Engine.Open()))
	if free, err := w.r.freeDisk(); err == nil {
		w.r.metrics.DiskFree.Set(float64(free))
	}
	st := w.r.Engine.Stats()
	durable, lazy := st.Durable, st.Lazy
	w.r.metrics.Commits.WithLabelValues("full").Add(float64(durable - w.counted[0]))
	w.r.metrics.Commits.WithLabelValues("lazy").Add(float64(lazy - w.counted[1]))
	w.counted = [2]int64{durable, lazy}
}

// poll asks for an inbox to be read soon; the sweep finds what is dropped here.
func (w *watch) poll(agentID string) {
	select {
	case w.polls <- agentID:
	default:
	}
}

// pollLoop reads inboxes that another program may have written.
func (w *watch) pollLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-w.polls:
			a, err := w.r.Get(id)
			if err != nil {
				continue
			}
			path, err := w.r.Path(store.Inbox(id))
			if err != nil {
				continue
			}
			sig := state.Stamp(path)
			if a.Unchanged(sig) && a.Known().Loaded && !a.HasProblem() {
				continue
			}
			if err := w.readInbox(ctx, a, sig); err != nil && ctx.Err() == nil {
				w.r.log.Warn("inbox not read", "agent_id", id, "error", err)
			}
		}
	}
}

// readInbox reads the head of an inbox and makes the agent due if it has risen. Our
// own writes come by here too and are dropped by the head they are known under.
func (w *watch) readInbox(ctx context.Context, a *state.Agent, sig string) error {
	if !a.Known().Loaded || a.HasProblem() { // loading it also clears a problem that is over
		if err := w.r.load(ctx, a); err != nil {
			return err
		}
		return w.reconcile(ctx, a)
	}
	p, err := w.r.Engine.Read(ctx, store.Inbox(a.ID), store.Query{After: 1<<62 - 1, Limit: 1})
	if err != nil {
		err = w.r.Fault(a.ID, thread.Inbox, err)
		if !errors.Is(err, context.Canceled) {
			a.SetError(err)
		}
		return err
	}
	a.SetSignature(sig)
	w.r.found(a, p.Head)
	return nil
}

// reconcile makes the subscription agree with the desired state.
func (w *watch) reconcile(ctx context.Context, a *state.Agent) error {
	st, err := w.r.Engine.State(ctx, a.ID)
	if err != nil || st.Started == st.Subscribed {
		return err
	}
	_, err = w.r.Engine.SetStarted(ctx, a.ID, st.Started, state.Handler(a.ID))
	return err
}
