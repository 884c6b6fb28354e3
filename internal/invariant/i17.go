package invariant

import (
	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// i17: the file is sound and every event is what was chained. Each event that is
// not is named, so that what is left can be trusted.
func (c *check) i17(d *snapshot.DB, broken []record.Flaw) {
	fix := repairOf(d.Agent)
	if d.Absent && !record.HasLines(d.Dir) {
		fix = "restore the agent from a backup: 'agentctl restore --agent " + d.Agent + " --replace FILE'; there is nothing here to make it of"
	}
	for _, f := range broken {
		c.report("I17", d, f.Event, fix, "%s", f.What)
	}
}
