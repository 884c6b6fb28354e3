package core

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/notify"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// Handler is the text of the inbox subscription: what an external dispatcher
// runs when a message arrives.
func Handler(agentID string) string { return "agent run " + agentID }

// Agent answers a known agent whose inbox has been read.
func (c *Core) Agent(ctx context.Context, id string) (*directory.Agent, error) {
	a, err := c.Dir.Get(id)
	if err != nil {
		return nil, err
	}
	if c.Shared == nil && a.Known().Loaded {
		return a, nil
	}
	return a, c.Load(ctx, a)
}

// DirOf answers the directory of a known agent.
func (c *Core) DirOf(id string) (agentdir.Dir, error) {
	a, err := c.Dir.Get(id)
	if err != nil {
		return agentdir.Dir{}, err
	}
	return c.Home.Agent(a.ID)
}

// Present tells the truth about a directory that may be gone while its database
// is still open here: a file that has no name any more takes writes gladly.
func (c *Core) Present(id string) error {
	if c.Shared != nil || !c.Dir.Missing(id) { // rows do not go away under a commit
		return nil
	}
	c.Forget(id)
	_, err := c.Dir.Get(id)
	return err
}

// Load reads an agent's inbox and makes it due if it has work.
func (c *Core) Load(ctx context.Context, a *directory.Agent) error {
	_, err := c.load(ctx, a, false)
	if err == nil || c.Shared != nil {
		return c.Fault(a.ID, thread.Inbox, err)
	}
	if gone := c.Present(a.ID); gone != nil {
		return gone
	}
	err = c.Fault(a.ID, thread.Inbox, err)
	Trouble(a, err)
	return err
}

// State is Load for who only wants to know, and answers what was read: from memory where
// nothing waits and nobody has written since, and without leaving a database open that
// was not. Its errors are the store's.
func (c *Core) State(ctx context.Context, a *directory.Agent) (store.InboxState, error) {
	return c.load(ctx, a, true)
}

func (c *Core) load(ctx context.Context, a *directory.Agent, lightly bool) (store.InboxState, error) {
	inbox := store.Inbox(a.ID)
	if c.Shared != nil {
		st, err := c.Store.State(ctx, a.ID)
		if err == nil {
			a.Take(st)
		}
		return st, err
	}
	path, err := c.Dir.Path(inbox)
	if err != nil {
		return store.InboxState{}, err
	}
	before, open := directory.Stamp(path), c.Embedded.IsOpen(inbox)
	if st, ok := a.Quiet(before); lightly && ok {
		return st, nil
	}
	st, err := c.Store.State(ctx, a.ID)
	if err != nil {
		return st, err
	}
	a.Load(st, before)
	c.MarkDue(a)
	if lightly && !open && !a.HasWork() { // ten thousand of these need not stay open
		c.Embedded.Forget(func(r store.Ref) bool { return r == inbox })
	}
	return st, nil
}

// MarkDue puts an agent that has work onto the lists; among several registries it says
// that there may be some.
func (c *Core) MarkDue(a *directory.Agent) {
	if c.Shared != nil {
		c.Shared.mayWork(a.ID)
		return
	}
	if a.HasWork() {
		c.DueRuns.Mark(a.ID)
	}
	if out := a.Outbox(); len(out) > 0 {
		c.DueDeliveries.Mark(a.ID, out...)
	}
}

// ToDeliver makes the replies of a thread due that reach up to head.
func (c *Core) ToDeliver(a *directory.Agent, threadID string, head int64) {
	if c.Shared != nil {
		c.Shared.replies(a.ID)
		return
	}
	a.ToDeliver(threadID, head)
	c.DueDeliveries.Mark(a.ID, threadID)
}

// FateOf tells who waits that an event or a delivery of an agent came to its end.
func (c *Core) FateOf(id string) {
	c.Fates.Wake(id)
	if c.Shared != nil {
		c.Shared.Tell(notify.Item{Kind: notify.Fate, Name: id})
	}
}

// Asked tells who waits that a question or an answer was stored.
func (c *Core) Asked() {
	c.Questions.Wake(struct{}{})
	if c.Shared != nil {
		c.Shared.Tell(notify.Item{Kind: notify.Approvals})
	}
}

// Again is when who waits looks again although nobody has told of anything: what other
// registries tell may be lost. It is nil for one that is alone.
func (c *Core) Again() <-chan time.Time {
	if c.Shared == nil {
		return nil
	}
	return time.After(again/2 + rand.N(again))
}

// again is about how long a wait is when nothing is told.
const again = 2 * time.Second

// Term tells terms apart in what is known of an agent: only a registry that is not
// alone with it has to.
func (c *Core) Term(f store.Fence) uint64 {
	if c.Shared == nil {
		return 1
	}
	return f.Token
}

// Forget drops everything about an agent whose directory is gone.
func (c *Core) Forget(id string) {
	c.Dir.Forget(id)
	c.DueRuns.Drop(id)
	c.DueDeliveries.Drop(id)
	c.Embedded.Forget(func(r store.Ref) bool { return r.Agent == id })
	for _, res := range []string{lease.AgentResource(id), lease.DeliverResource(id)} {
		if rec, ok, _ := c.Leases.Get(context.Background(), res); ok {
			// The holder's next call is told; the row costs nothing.
			_ = c.Leases.Release(context.Background(), res, rec.Token)
		}
	}
	c.Metrics.LookForLag(c.Dir.Lags) // the next scrape does not take what was seen a moment ago
	c.Log.Warn("agent directory is gone", "agent_id", id)
}
