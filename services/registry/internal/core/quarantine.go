package core

import (
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// quarantine sets an agent aside whose database is damaged: it is FAILED and
// gets no work while this registry runs. All others go on.
//
// The file keeps its name here. A thread without events.db is one that the next
// message makes anew, empty: what was answered and sent would be forgotten, and
// done again. Under its name the damage answers every call, also after a restart,
// until 'agentctl fsck --repair' renames it and puts the salvaged one in its
// place, with the home's lock held.
func (c *Core) quarantine(a *directory.Agent, r store.Ref, err error) {
	f := fault.From(c.Fault(r.Agent, r.Thread, err))
	a.Damage(r.Thread, f.What+": "+f.Fix)
	c.DueRuns.Drop(a.ID)
}
