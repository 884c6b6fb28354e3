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
		e, ok := d.Event(l.ID)
		switch {
		case !ok && l.ID <= max(d.Head(), d.Sequence):
			c.report("I18", d, repairOf(d.Agent), "events.jsonl has event %d, and the database has not", l.ID)
		case ok && e.Plain && !sameLine(e, l):
			c.report("I18", d, repairOf(d.Agent), "events.jsonl has another event %d than the database", l.ID)
		}
		return nil
	})
}

// sameLine compares without the time: the external tool writes its own clock's.
func sameLine(e snapshot.Event, l thread.Event) bool {
	l.CreatedAt = e.CreatedAt
	return l.Hash(nil) == e.Sum
}
