package invariant

import (
	"maps"
	"slices"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// i7: an ack never passes what is done and never falls. For the inbox what is
// done is I1; here it is what exists, and what was said and is on its way.
func (c *check) i7(d *snapshot.DB) {
	for _, consumer := range slices.Sorted(maps.Keys(d.Acks)) {
		id := d.Acks[consumer]
		if head := max(d.Head(), d.Sequence); id > head {
			c.report("I7", d, 0, look(d.Agent), "%s is acknowledged up to %d, and the newest event is %d", consumer, id, head)
		}
		if before := c.o.Acks[d.Agent+"/"+d.Thread+"/"+consumer]; id < before {
			c.report("I7", d, 0, look(d.Agent), "%s was acknowledged up to %d before, and up to %d now", consumer, before, id)
		}
	}
	if d.IsInbox() {
		return
	}
	rows := map[int64]bool{}
	for _, v := range d.Deliveries {
		rows[v.EventID] = true
	}
	for key, v := range d.Dedupe {
		// Only what we have said: events from before this software have no row.
		if e, ok := d.Event(v.EventID); ok && v.EventID <= d.Acks[thread.Outbound] && spoken(e) && !rows[v.EventID] {
			c.report("I7", d, v.EventID, look(d.Agent), "event %d is acknowledged by outbound and was never to be delivered (%s)", v.EventID, key)
		}
	}
}

func spoken(e snapshot.Event) bool {
	return e.Type == thread.TypeMessage && e.Source == thread.SourceSelf
}

// i8: a tool step that is done ran, and is told in the thread; one with an
// effect ran once, unless its end was in doubt and it was asked for again.
func (c *check) i8(d *snapshot.DB) {
	ran := map[string]int{}
	for _, key := range c.o.Runs {
		ran[key]++
	}
	for _, s := range d.Steps {
		if s.Kind != store.StepTool {
			continue
		}
		n := ran[s.Turn+":"+s.Key]
		if c.o.Runs != nil && s.State == store.StepDone && n == 0 {
			c.report("I8", d, 0, look(d.Agent), "tool step %s of %s is done and never ran", s.Key, s.Turn)
		}
		if s.Class == store.ClassEffect && n > 1 && s.State != store.StepInDoubt {
			c.report("I8", d, 0, look(d.Agent), "tool step %s of %s ran %d times and has an effect", s.Key, s.Turn, n)
		}
		if s.State == store.StepIntent {
			continue
		}
		told, ok := d.Dedupe[s.Turn+":"+s.Key]
		if _, there := d.Event(told.EventID); !ok || !there {
			c.report("I8", d, 0, look(d.Agent), "tool step %s of %s is %s, and no event tells its result", s.Key, s.Turn, s.State)
		}
	}
}
