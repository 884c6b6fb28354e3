package invariant

import (
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/thread"
)

// i1: every inbox id up to the ack has a fate.
func (c *check) i1(inbox *snapshot.DB) {
	has := map[int64]bool{}
	for _, f := range inbox.Fates {
		has[f.ID] = true
	}
	for _, e := range inbox.Events {
		if e.ID > inbox.Acks[thread.Inbox] {
			return
		}
		if !has[e.ID] {
			c.report("I1", inbox, e.ID, look(inbox.Agent), "event %d is acknowledged and has no fate", e.ID)
		}
	}
}

// i2: an inbox event is one message event of its thread, whatever was repeated.
func (c *check) i2(d *snapshot.DB) {
	accounted := map[int64]string{} // event id -> key it was recorded for
	said := map[[32]byte]int64{}
	for _, t := range d.Turns {
		in, ok := d.Dedupe[t.Key+":in"]
		e, there := d.Event(in.EventID)
		switch {
		case !ok:
			c.report("I2", d, t.InboxID, look(d.Agent), "the turn of inbox event %d has no message event", t.InboxID)
			continue
		case !there:
			c.report("I2", d, in.EventID, repairOf(d.Agent), "message event %d of inbox event %d is gone", in.EventID, t.InboxID)
			continue
		case in.EventID != t.InboundID:
			c.report("I2", d, t.InboxID, look(d.Agent), "inbox event %d was recorded as event %d and as event %d", t.InboxID, in.EventID, t.InboundID)
			continue
		}
		if other, twice := accounted[in.EventID]; twice {
			c.report("I2", d, in.EventID, look(d.Agent), "event %d is the message of two inbox events, %s and %s", in.EventID, other, t.Key)
		}
		accounted[in.EventID] = t.Key
		said[e.Said] = e.ID
	}
	for _, e := range d.Events {
		if e.Type != thread.TypeMessage || e.Source == thread.SourceSelf || accounted[e.ID] != "" {
			continue // a message that another program put here has no account, and none is asked for
		}
		if of, ok := said[e.Said]; ok && e.ID > of {
			c.report("I2", d, e.ID, look(d.Agent), "event %d repeats message event %d and no inbox event accounts for it", e.ID, of)
		}
	}
}
