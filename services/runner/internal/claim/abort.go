package claim

import "github.com/theclaw/agents/internal/fault"

// endRuns ends runs that people want ended who cannot reach this runner: the registry
// has told it with a renewal, and tells it again with the next.
func (c *claim) endRuns(runs []string) {
	select {
	case <-c.ready:
	default:
		return // nothing is worked on yet: the next renewal says it again
	}
	for _, run := range runs {
		c.mu.Lock()
		known := c.ending[run]
		if !known {
			if c.ending == nil {
				c.ending = map[string]bool{}
			}
			c.ending[run] = true
		}
		c.mu.Unlock()
		if known || c.s.deps.End == nil {
			continue
		}
		c.ends.Go(func() {
			if err := c.s.deps.End(c.held, c.agentID, run); err != nil {
				c.s.deps.Logger.Info("run not aborted", "agent_id", c.agentID, "run_id", run, "error", fault.Chain(err))
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.ending, run)
		})
	}
}
