package standalone

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/removal"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/runlock"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Agent returns a known agent whose inbox has been read.
func (r *Registry) Agent(ctx context.Context, id string) (*state.Agent, error) {
	a, err := r.Get(id)
	if err != nil {
		return nil, err
	}
	if a.Known().Loaded {
		return a, nil
	}
	return a, r.load(ctx, a)
}

// Find returns an agent that exists, with what is known of it when it can be read: a broken
// one too.
func (r *Registry) Find(ctx context.Context, id string) (*state.Agent, error) {
	a, err := r.Get(id)
	if err == nil {
		err = r.Present(id)
	}
	if err != nil {
		return nil, err
	}
	if _, err := r.Agent(ctx, id); fault.Is(err, fault.AgentNotFound) {
		return nil, err
	}
	return a, nil
}

// List returns a page of the agents in order, broken ones too; next is where the next
// page begins, "" at the end.
func (r *Registry) List(_ context.Context, after string, limit int) (page []*state.Agent, next string, err error) {
	if after == "" {
		if err := r.watch.rescan(); err != nil {
			return nil, "", err
		}
	}
	ids, next := wire.Page(r.Agents.IDs(), after, limit, limit)
	for _, id := range ids {
		if a, err := r.Get(id); err == nil {
			page = append(page, a)
		}
	}
	return page, next, nil
}

// Present returns the truth about a directory that may be gone while its database
// is still open here: a file that has no name any more takes writes gladly.
func (r *Registry) Present(id string) error {
	if !r.Missing(id) {
		return nil
	}
	r.forget(id)
	_, err := r.Get(id)
	return err
}

// Pushed loads an agent that was not read yet, which makes it due.
func (r *Registry) Pushed(ctx context.Context, a *state.Agent) {
	if !a.Known().Loaded {
		_ = r.load(ctx, a) // a problem is in its status
	}
}

// Stopped reports whether an agent is stopped.
func (r *Registry) Stopped(a *state.Agent) bool { return !a.Started() }

// State returns the state of an inbox: from memory where the agent is idle and nobody has
// written since, and without leaving a database open that was closed. Its errors are the
// store's, or AGENT_NOT_FOUND.
func (r *Registry) State(ctx context.Context, a *state.Agent) (store.InboxState, error) {
	if err := r.Present(a.ID); err != nil {
		return store.InboxState{}, err
	}
	return r.read(ctx, a, true)
}

// load reads an agent's inbox and makes it due if it has work.
func (r *Registry) load(ctx context.Context, a *state.Agent) error {
	_, err := r.read(ctx, a, false)
	if err == nil {
		return nil
	}
	if gone := r.Present(a.ID); gone != nil {
		return gone
	}
	err = r.Fault(a.ID, thread.Inbox, err)
	a.SetError(err)
	return err
}

func (r *Registry) read(ctx context.Context, a *state.Agent, lightly bool) (store.InboxState, error) {
	inbox := store.Inbox(a.ID)
	path, err := r.Path(inbox)
	if err != nil {
		return store.InboxState{}, err
	}
	before, open := state.Stamp(path), r.Engine.IsOpen(inbox)
	if st, ok := a.IdleState(before); lightly && ok {
		return st, nil
	}
	st, err := r.Engine.State(ctx, a.ID)
	if err != nil {
		return st, err
	}
	if st.Undecided && st.Started {
		if err := r.takeOver(ctx, a); err != nil {
			return st, err
		}
		if _, err := r.Engine.SetStarted(ctx, a.ID, true, state.Handler(a.ID)); err != nil {
			return st, err
		}
	}
	a.Load(st, before)
	r.MarkDue(a)
	if lightly && !open && !a.HasWork() { // ten thousand of these need not stay open
		r.closeThread(inbox)
	}
	return st, nil
}

// SetStarted stores whether an agent shall work. At the first time the replies that
// another agent has left in its conversations become due.
func (r *Registry) SetStarted(ctx context.Context, id string, started bool, handler string) (changed bool, err error) {
	a, err := r.Get(id)
	if err != nil {
		return false, err
	}
	st, err := r.Engine.State(ctx, id)
	if err == nil && st.Undecided {
		err = r.takeOver(ctx, a)
	}
	if err != nil {
		return false, err
	}
	if started {
		r.makeWorkspace(a)
	}
	return r.Engine.SetStarted(ctx, id, started, handler)
}

// takeOver makes every conversation of an agent due for delivery that only another agent
// has worked on: that one's outbound ack is known, and which replies are behind it is not
// until the conversation is opened. It is done before the desired state is stored for the
// first time, so that a registry that was killed in between does it again.
func (r *Registry) takeOver(ctx context.Context, a *state.Agent) error {
	const page = 256
	for after := ""; ; {
		ids, err := r.Threads(ctx, a.ID, after, page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := r.Engine.MarkOutbox(ctx, a.ID, store.OutboxMark{Thread: id, Reopen: true}); err != nil {
				return err
			}
			r.ToDeliver(a, id, 1)
		}
		if len(ids) < page {
			return nil
		}
		after = ids[len(ids)-1]
	}
}

// closeThread closes the database of a thread.
func (r *Registry) closeThread(ref store.Ref) {
	r.Engine.Forget(func(other store.Ref) bool { return other == ref })
}

// Visit is called before a thread is read once; leave closes its database if that was not
// open before: ten thousand of them need not stay open.
func (r *Registry) Visit(ref store.Ref) (leave func()) {
	if r.Engine.IsOpen(ref) {
		return func() {}
	}
	return func() { r.closeThread(ref) }
}

// Begin makes the thread of a turn when it is absent, and begins the turn.
func (r *Registry) Begin(ctx context.Context, ref store.Ref, tuple string, f store.Fence, b store.Begin) (store.Begun, error) {
	if _, err := r.Engine.Ensure(ctx, ref, tuple); err != nil {
		return store.Begun{}, err
	}
	return r.Engine.Begin(ctx, ref, f, b)
}

// Term returns 1: in all terms of a lease only this process changes an agent.
func (r *Registry) Term(store.Fence) uint64 { return 1 }

// Missing reports whether the directory of an agent is gone. It selects the method of
// Agents, as Faults has a field of this name.
func (r *Registry) Missing(id string) bool { return r.Agents.Missing(id) }

// Place returns the directory of an agent.
func (r *Registry) Place(id string) string {
	dir, err := r.home.Agent(id)
	if err != nil {
		return ""
	}
	return dir.Path
}

// Create creates an agent, its directory together with its inbox.
func (r *Registry) Create(ctx context.Context, id string, spec agentdir.Spec) (*state.Agent, error) {
	r.making.RLock()
	defer r.making.RUnlock()
	defer r.watch.making(id)()
	spec.Prepare = r.Engine.MakeInbox
	if _, err := r.home.Create(id, spec); err != nil {
		return nil, r.Fault(id, thread.Inbox, err)
	}
	a, err := r.Get(id)
	if err == nil {
		r.watch.add(a)
		r.makeWorkspace(a)
	}
	return a, err
}

// makeWorkspace makes the workspace of an agent whose flavor has one with files, if it is missing. Without it the
// agent works all the same.
func (r *Registry) makeWorkspace(a *state.Agent) {
	set, err := a.Settings(r.home)
	if err != nil {
		return // its status has the problem
	}
	made, err := set.MakeWorkspace()
	if err != nil {
		r.log.Warn("an agent has no workspace", "agent_id", a.ID, "error", err)
		return
	}
	if _, err := exec.LookPath("git"); made && err != nil {
		r.log.Warn("the new workspace has an empty repository; install git to use it", "agent_id", a.ID)
	}
}

// Block keeps the leases of an agent that is being removed from being granted to a worker.
func (r *Registry) Block(id string) (unblock func()) {
	r.blockedMu.Lock()
	defer r.blockedMu.Unlock()
	r.blocked[id]++
	return func() {
		r.blockedMu.Lock()
		defer r.blockedMu.Unlock()
		if r.blocked[id]--; r.blocked[id] == 0 {
			delete(r.blocked, id)
		}
	}
}

// isBlocked reports whether an agent is being removed.
func (r *Registry) isBlocked(id string) bool {
	r.blockedMu.Lock()
	defer r.blockedMu.Unlock()
	return r.blocked[id] > 0
}

// Idle returns a *lease.HeldError while a program outside works on an agent: it has
// run.lock.
func (r *Registry) Idle(ctx context.Context, id string) error {
	dir, err := r.home.Agent(id)
	if err != nil {
		return nil // nobody can
	}
	if _, live, err := r.Table.Get(ctx, lease.AgentResource(id)); err != nil || live {
		return err // the file is ours
	}
	var locks runLocks
	return errors.Join(locks.take(id, dir.RunLock()), locks.close())
}

// Blocker describes the program outside that works on an agent, or has done so and holds
// its run.lock; empty: there is none.
func (r *Registry) Blocker(ctx context.Context, id string) string {
	dir, err := r.home.Agent(id)
	if err != nil {
		return ""
	}
	if _, live, err := r.Table.Get(ctx, lease.AgentResource(id)); err != nil || live {
		return "" // the file is ours
	}
	if held, err := runlock.New(dir.RunLock()).Holder(); err == nil && held != nil {
		return held.Error()
	}
	return ""
}

// GiveBack ends the lease of an agent that was stopped, when no turn is under way, so that
// its directory may be moved or copied at once. A holder that still works is asked for the
// lease: it gives it back after its turns.
func (r *Registry) GiveBack(ctx context.Context, a *state.Agent) {
	resource := lease.AgentResource(a.ID)
	rec, live, err := r.Table.Get(ctx, resource)
	if err != nil || !live {
		return
	}
	// The turns under a lease that an earlier process granted are not known here.
	if a.Working() || !r.Leases.files.has(a.ID) {
		_, _ = r.Table.RequestYield(ctx, resource) // a holder that misses it keeps the lease for its usual time
		return
	}
	if err := r.Leases.Release(ctx, resource, rec.Token); err != nil {
		r.log.Warn("lease not ended", "agent_id", a.ID, "error", err)
	}
	r.Ended(ctx, a.ID)
}

// Remove removes an agent whose leases the caller has, with all its data: its name, after
// which the agent does not exist; its rows in the home's own tables; its files. A registry
// that is killed after the first step does the others when it starts (settle). Databases
// are closed first and last, because an open one takes writes without a name.
func (r *Registry) Remove(ctx context.Context, id string) error {
	r.making.Lock() // nobody makes an agent of the name between the two steps
	defer r.making.Unlock()
	r.Engine.Forget(func(ref store.Ref) bool { return ref.Agent == id })
	if err := r.Leases.files.release(id); err != nil { // a worker whose lease was ended had it
		r.log.Warn("run.lock not removed", "agent_id", id, "error", err)
	}
	away, err := removal.Put(r.home, id)
	if err != nil {
		return err
	}
	fault.Point("remove:named")
	ctx = context.WithoutCancel(ctx) // it has begun
	r.counts.Forget(id)
	r.Quota.Forget(id)
	r.forget(id)
	r.Log.forget(id)
	err = r.tables.Forget(ctx, id)
	fault.Point("remove:rows")
	if err == nil {
		err = removal.Clear(r.home, away, true)
	}
	fault.Point("remove:cleared")
	if err != nil {
		return agentdir.Fault(fmt.Errorf("agent %s is removed, and the registry removes what is left of it when it starts: %w", id, err))
	}
	return nil
}

// settle finishes removals that a killed registry left.
func (r *Registry) settle(ctx context.Context) error {
	away, err := removal.Unfinished(r.home)
	for _, g := range away {
		one := r.tables.Forget(ctx, g.Agent)
		if one == nil {
			one = removal.Clear(r.home, g, true)
		}
		err = errors.Join(err, one)
	}
	return err
}

// forget drops everything about an agent whose directory is gone.
func (r *Registry) forget(id string) {
	r.Agents.Forget(id)
	r.runs.Drop(id)
	r.deliveries.Drop(id)
	r.Engine.Forget(func(ref store.Ref) bool { return ref.Agent == id })
	for _, res := range []string{lease.AgentResource(id), lease.DeliverResource(id)} {
		if rec, ok, _ := r.Table.Get(context.Background(), res); ok {
			// The holder's next call fails; the row costs nothing.
			_ = r.Table.Release(context.Background(), res, rec.Token)
		}
	}
	r.metrics.SetLagSource(r.Agents.Lags) // the next scrape reads anew
	r.log.Warn("agent directory is gone", "agent_id", id)
}

// recall restores what the last run saved of inboxes that nobody has written since; found is
// called with each agent once the path of its inbox is known.
func (r *Registry) recall(ctx context.Context, found func(*state.Agent)) {
	known, err := r.tables.Inboxes(ctx)
	if err != nil {
		r.log.Warn("saved state of the inboxes not loaded", "error", err)
	}
	r.Agents.ForEach(ctx, func(a *state.Agent) {
		i, ok := known[a.ID]
		// A path outside of the agent's directory may be that of the home of which this one is a copy.
		if ok && strings.HasPrefix(i.Path, r.home.AgentDir(a.ID)+string(filepath.Separator)) {
			a.SetInboxPath(i.Settings, i.Path)
		}
		found(a)
		if !ok || i.Head != i.Acked {
			return
		}
		if path, err := r.Path(store.Inbox(a.ID)); err == nil && state.Stamp(path) == i.Signature {
			a.Recall(store.InboxState{Started: i.Started, Head: i.Head, Acked: i.Acked, Dead: i.Dead, LastAt: i.LastAt}, i.Signature)
		}
	})
}

// saveInboxes saves the idle states for the next start; each database reported its signature
// when it was closed.
func (r *Registry) saveInboxes() {
	var put []store.KnownInbox
	r.Agents.ForEach(context.Background(), func(a *state.Agent) {
		k := a.Known()
		if !k.Loaded || k.Outbound > 0 || k.Problem != "" {
			return
		}
		sig, place := a.InboxPath()
		put = append(put, store.KnownInbox{Agent: a.ID, Settings: sig, Path: place, Signature: a.Signature(), Started: k.Started, Head: k.Head, Acked: k.Acked, Dead: k.Dead, LastAt: a.LastAt()})
	})
	if err := r.tables.SaveInboxes(context.Background(), put); err != nil {
		r.log.Warn("state of the inboxes not saved", "error", err)
	}
}
