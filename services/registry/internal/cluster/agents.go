package cluster

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// Get returns what is known of an agent, also of one that does not exist: the next query
// reports that. Errors: INVALID_ARGUMENT for an invalid name.
func (r *Registry) Get(id string) (*state.Agent, error) {
	r.mu.RLock()
	a := r.agents[id]
	r.mu.RUnlock()
	if a != nil {
		return a, nil
	}
	if _, err := r.home.Agent(id); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.agents) >= maxKnown {
		clear(r.agents)
	}
	if r.agents[id] == nil {
		r.agents[id] = state.NewAgent(id)
	}
	return r.agents[id], nil
}

// Agent returns an agent whose inbox has been read.
func (r *Registry) Agent(ctx context.Context, id string) (*state.Agent, error) {
	a, err := r.Get(id)
	if err != nil {
		return nil, err
	}
	_, err = r.State(ctx, a)
	return a, r.Fault(id, thread.Inbox, err)
}

// Find is Agent.
func (r *Registry) Find(ctx context.Context, id string) (*state.Agent, error) {
	return r.Agent(ctx, id)
}

// List returns a page of the agents in order, with what is known of each, in one query;
// next is where the next page begins, "" at the end.
func (r *Registry) List(ctx context.Context, after string, limit int) (page []*state.Agent, next string, err error) {
	all, err := r.Files.list(ctx, after, limit)
	if err != nil {
		return nil, "", r.Fault("", thread.Inbox, err)
	}
	for _, e := range all {
		a, err := r.Get(e.ID)
		if err != nil {
			return nil, "", err
		}
		a.SetStarted(e.Started)
		page = append(page, a)
	}
	if len(page) == limit {
		next = page[limit-1].ID
	}
	return page, next, nil
}

// Present returns nil: rows do not go away under a commit.
func (r *Registry) Present(string) error { return nil }

// Pushed does nothing: the row shows that there is work.
func (r *Registry) Pushed(context.Context, *state.Agent) {}

// Stopped returns false: the transaction that claims judges.
func (r *Registry) Stopped(*state.Agent) bool { return false }

// State returns the state of an inbox, as it was a moment ago.
func (r *Registry) State(ctx context.Context, a *state.Agent) (store.InboxState, error) {
	st, err := r.Engine.State(ctx, a.ID)
	if err == nil {
		a.SetState(st)
	}
	return st, err
}

// Visit is called before a thread is read once.
func (r *Registry) Visit(store.Ref) (leave func()) { return func() {} }

// Term returns the fencing token: between two terms of a lease another registry may have
// changed the agent.
func (r *Registry) Term(f store.Fence) uint64 { return f.Token }

// Missing reports whether there is no such agent.
func (r *Registry) Missing(id string) bool {
	if _, err := r.home.Agent(id); err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), missingTimeout)
	defer cancel()
	return errors.Is(r.db.Has(ctx, id), store.ErrNotFound)
}

// Path checks the names of a thread; it has no directory.
func (r *Registry) Path(ref store.Ref) (string, error) {
	if _, err := r.home.Agent(ref.Agent); err != nil {
		return "", err
	}
	return "", layout.ValidThread(ref.Thread)
}

// Place returns "": an agent has no directory.
func (r *Registry) Place(string) string { return "" }

// Create creates an agent.
func (r *Registry) Create(ctx context.Context, id string, spec agentdir.Spec) (*state.Agent, error) {
	r.making.RLock()
	defer r.making.RUnlock()
	if err := r.Files.create(ctx, id, spec); err != nil {
		return nil, r.Fault(id, thread.Inbox, err)
	}
	return r.Get(id)
}

// Block does nothing: the row of a lease that was given back on request keeps it for the
// caller of Acquire.
func (r *Registry) Block(string) (unblock func()) { return func() {} }

// Idle returns nil: nobody works on an agent without its lease.
func (r *Registry) Idle(context.Context, string) error { return nil }

// Blocker returns nothing: no program outside works on an agent of a database.
func (r *Registry) Blocker(context.Context, string) string { return "" }

// GiveBack asks the holder of an agent that was stopped to give the lease back, which ends what it
// runs in the background. One that misses it keeps the lease for its usual time.
func (r *Registry) GiveBack(ctx context.Context, a *state.Agent) {
	_, _ = r.Table.RequestYield(ctx, lease.AgentResource(a.ID))
}

// Remove removes an agent whose leases the caller has, with all its rows and the files that
// runners of this home wrote for it.
func (r *Registry) Remove(ctx context.Context, id string) error {
	r.making.Lock() // nobody makes an agent of the name between the two steps
	defer r.making.Unlock()
	clearRest, err := r.Files.remove(ctx, id)
	if err != nil {
		return err
	}
	fault.Point("remove:named")
	r.mu.Lock()
	delete(r.agents, id)
	r.mu.Unlock()
	r.Quota.Forget(id)
	r.markDue(id) // waiters find that it is gone
	r.Wakes.FateChanged(id)
	return clearRest()
}

// row reports whether a file that the agent or its runner keeps is a row: memory is.
// Sessions are with the runner that keeps them, in this home as far as it is its own.
func row(name string) bool { return strings.HasPrefix(name, "memory/") }

// OwnFile returns such a file; the cause of one that is missing is fs.ErrNotExist.
func (r *Registry) OwnFile(ctx context.Context, id, name string) ([]byte, error) {
	if row(name) {
		b, _, err := r.Read(ctx, id, name)
		return b, err
	}
	dir, err := r.home.Agent(id)
	if err != nil {
		return nil, err
	}
	b, err := dir.OwnFile(name)
	if fault.Is(err, fault.AgentNotFound) { // no runner of this home has worked for it
		return nil, fs.ErrNotExist
	}
	return b, err
}

// PastFiles lists the digests of threads of epochs that have ended.
func (r *Registry) PastFiles(ctx context.Context, id string, threads []string) ([]string, error) {
	const past = "memory/past/"
	names, err := r.db.Names(ctx, id, past)
	return slices.DeleteFunc(names, func(n string) bool {
		return !slices.ContainsFunc(threads, func(t string) bool { return route.IsMemoryPastFile(t, strings.TrimPrefix(n, past)) })
	}), r.Fault(id, thread.Inbox, err)
}

// ErasePeer erases the data of a peer outside of the threads of an agent: files by their
// names, questions and lines of the log.
func (r *Registry) ErasePeer(ctx context.Context, id string, s store.PeerRecords, files []string) error {
	dir, err := r.home.Agent(id)
	if err != nil {
		return err
	}
	s.Files = []string{}
	for _, n := range files {
		if row(n) {
			s.Files = append(s.Files, n)
		} else if err := dir.RemoveFile(n); err != nil {
			return err
		}
	}
	r.Log.lines.Flush() // recent lines of this registry count too
	return r.Approvals.ErasePeer(ctx, id, s)
}
