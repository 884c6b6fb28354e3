package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/gone"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

// Remove takes away an agent whose leases the caller has, and all that is kept of it:
// its name, from where on there is no such agent; the rows of the home's own; the files.
// A registry that is killed after the first step does the others when it starts
// (Settle). Databases are closed first and last: an open one takes writes without a name.
func (c *Core) Remove(ctx context.Context, id string) error {
	mine := func(r store.Ref) bool { return r.Agent == id }
	if c.Embedded != nil {
		c.Embedded.Forget(mine)
	}
	clearRest, err := c.Agents.Remove(ctx, id)
	if err != nil {
		return err
	}
	fault.Point("remove:named")
	ctx = context.WithoutCancel(ctx) // it has begun
	c.Quota.Forget(id)
	if c.Shared != nil {
		c.Dir.Forget(id)
		c.Shared.mayWork(id) // who waits for it is told that it is gone
		c.FateOf(id)
		return clearRest()
	}
	c.Forget(id)
	if dir, err := c.Home.Agent(id); err == nil && c.agentLogs != nil {
		_ = c.agentLogs.Forget(dir.Logs())
	}
	err = c.homeDB.Forget(ctx, id)
	fault.Point("remove:rows")
	if err == nil {
		err = clearRest()
	}
	fault.Point("remove:cleared")
	if err != nil {
		return agentdir.Fault(fmt.Errorf("agent %s is removed, and the registry removes what is left of it when it starts: %w", id, err))
	}
	return nil
}

// Settle finishes removals that a killed registry left.
func (c *Core) Settle(ctx context.Context) error {
	away, err := gone.Left(c.Home)
	for _, g := range away {
		one := c.homeDB.Forget(ctx, g.Agent)
		if one == nil {
			one = gone.Clear(c.Home, g)
		}
		err = errors.Join(err, one)
	}
	return err
}
