package core

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// MaxFollow bounds the wait of a batch for events.
const MaxFollow = 30 * time.Second

// pushed notes the head of an inbox and makes the agent due, unless a batch waits for
// what is new: it is woken, and marks the agent itself when it leaves before it has
// read that.
func (c *Core) pushed(a *directory.Agent, head int64) (news bool) {
	news = a.Pushed(head)
	if news && a.Started() && !a.Followed() {
		c.DueRuns.Mark(a.ID)
	}
	return news
}

// Found is pushed for events of another program, and wakes who follows the inbox.
func (c *Core) Found(a *directory.Agent, head int64) {
	if c.pushed(a, head) {
		c.Events.Wake(store.Inbox(a.ID))
	}
}

// Follow says that a batch waits for what comes to an inbox. When it leaves it says
// up to where it has read.
func (c *Core) Follow(a *directory.Agent) (leave func(read int64)) {
	a.Follow(1)
	return func(read int64) {
		a.Follow(-1)
		if k := a.Known(); k.Started && k.Head > max(read, k.Acked) {
			c.DueRuns.Mark(a.ID)
		}
	}
}

// News waits until the inbox of an agent has an event after one, as far as is known
// here; false when none came.
func (c *Core) News(ctx context.Context, a *directory.Agent, after int64, wait time.Duration) (bool, error) {
	timeout := time.NewTimer(min(wait, MaxFollow))
	defer timeout.Stop()
	for {
		woken, done := c.Events.Wait(store.Inbox(a.ID)) // before the look, so that nothing is missed
		if a.Known().Head > after {
			done()
			return true, nil
		}
		var over bool
		select {
		case <-woken:
		case <-timeout.C:
			over = true
		case <-rpc.Draining(ctx):
			over = true
		case <-ctx.Done():
			over = true
		}
		done()
		if over {
			return false, ctx.Err()
		}
	}
}
