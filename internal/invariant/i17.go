package invariant

import (
	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// i17: the file is sound and every event is what was chained. Each event that is
// not is named, so that what is left can be trusted.
func (c *check) i17(d *snapshot.DB) {
	for _, what := range record.Broken(d) {
		c.report("I17", d, repairOf(d.Agent), "%s", what)
	}
}
