package invariant

import (
	"strings"

	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/thread"
)

// i18: the external tool finds its tables and indexes, and events.jsonl, where
// it has a line, says what the database says.
func (c *check) i18(d *snapshot.DB) {
	if len(d.Missing) > 0 {
		c.report("I18", d, repairOf(d.Agent), "the database has no %s", strings.Join(d.Missing, ", "))
	}
	if d.Unread["events"] {
		return
	}
	_ = record.Lines(d.Dir, func(l thread.Event) error {
		if _, ok := d.Event(l.ID); !record.Agrees(d, l) {
			said := "another event %d than the database"
			if !ok {
				said = "event %d, and the database has not"
			}
			c.report("I18", d, repairOf(d.Agent), "events.jsonl has "+said, l.ID)
		}
		return nil
	})
}
