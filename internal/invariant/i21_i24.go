package invariant

import (
	"maps"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/sessionkey"
)

// pushed is the key under which a push is remembered.
const pushed = "push:"

// i21: what an account received under a key is one event, whatever inbox or conversation it
// came to. A restored copy of an agent has the same events, and they count once. The inboxes of
// a home at work are each read at a time of their own, and before the conversations: what is
// found twice was stored twice.
func (c *check) i21() {
	type place struct {
		d     *snapshot.DB
		event snapshot.Event
	}
	first := map[string]place{}
	for _, a := range c.home.Agents {
		if !sound(a.Inbox) {
			continue
		}
		received := map[int64]bool{}
		for _, o := range a.Inbox.Origins {
			received[o.InboxID] = o.Account != ""
		}
		for _, k := range slices.Sorted(maps.Keys(a.Inbox.Dedupe)) {
			key, push := strings.CutPrefix(k, pushed)
			e, there := a.Inbox.Event(a.Inbox.Dedupe[k].EventID)
			if !push || !there || !received[e.ID] {
				continue
			}
			was, twice := first[key]
			if twice && was.event.Key != e.Key {
				c.report("I21", a.Inbox, e.ID, look(a.ID), "event %d and event %d of the inbox of %s were both received under the key %q", e.ID, was.event.ID, was.d.Agent, key)
			}
			if !twice {
				first[key] = place{a.Inbox, e}
			}
		}
	}
	if len(first) == 0 {
		return
	}
	for _, a := range c.home.Agents {
		for _, d := range a.Threads {
			if !sound(d) {
				continue
			}
			for _, k := range slices.Sorted(maps.Keys(d.Dedupe)) {
				key, push := strings.CutPrefix(k, pushed)
				if was, twice := first[key]; push && twice {
					id := d.Dedupe[k].EventID
					c.report("I21", d, id, look(a.ID), "event %d and event %d of the inbox of %s were both received under the key %q", id, was.event.ID, was.d.Agent, key)
				}
			}
		}
	}
}

// i23: a message belongs to the conversation that its session key names, the key is one of the
// agent that has the message, and no other conversation works on it.
func (c *check) i23(a *snapshot.Agent) {
	of := map[int64]string{}
	for _, o := range a.Inbox.Origins {
		of[o.InboxID] = o.Thread
		k, err := sessionkey.Parse(o.Key)
		switch {
		case o.Key == "": // of a process in a conversation that has no key
		case err != nil:
			c.report("I23", a.Inbox, o.InboxID, look(a.ID), "event %d has the session key %.200q, which is none", o.InboxID, o.Key)
		case k.Agent != a.ID:
			c.report("I23", a.Inbox, o.InboxID, look(a.ID), "event %d has the session key %.200q of another agent", o.InboxID, o.Key)
		case k.Thread() != o.Thread:
			c.report("I23", a.Inbox, o.InboxID, look(a.ID), "event %d has the session key %.200q of %s, and the conversation %s", o.InboxID, o.Key, k.Thread(), o.Thread)
		}
	}
	for _, d := range a.Threads {
		if !sound(d) {
			continue
		}
		for _, t := range d.Turns {
			thread, known := of[t.InboxID]
			if uuid, _, _ := strings.Cut(t.Key, ":"); known && uuid == a.Inbox.UUID && thread != d.Thread {
				c.report("I23", d, t.InboxID, look(a.ID), "inbox event %d was worked on here, and its conversation is %s", t.InboxID, thread)
			}
		}
	}
}

// i24: each epoch of an agent has an id of its own, the session of a conversation begins with
// the newest epoch, and the list of an inbox says what the sessions say.
func (c *check) i24(a *snapshot.Agent) {
	begun := map[string]string{} // the conversation, by the id of an epoch
	for _, d := range a.Threads {
		if sound(d) {
			c.i24Thread(d, begun)
		}
	}
	if sound(a.Inbox) && !c.home.Shared && !c.o.Live { // at work the list follows, and it was read earlier
		c.i24List(a)
	}
}

func (c *check) i24Thread(d *snapshot.DB, begun map[string]string) {
	var newest snapshot.Epoch
	for _, e := range d.OwnEpochs() {
		newest = e
		other, twice := begun[e.ID]
		switch {
		case e.Erased:
			continue
		case e.ID == "":
			c.report("I24", d, e.EventID, look(d.Agent), "event %d begins an epoch without an id", e.EventID)
			continue
		case twice:
			c.report("I24", d, e.EventID, look(d.Agent), "event %d begins the epoch %s, which began in %s before", e.EventID, e.ID, other)
		}
		begun[e.ID] = d.Thread
	}
	switch s := d.Session; {
	case s == nil && newest.EventID != 0:
		c.report("I24", d, newest.EventID, repairOf(d.Agent), "event %d begins an epoch, and the conversation has no session", newest.EventID)
	case s == nil:
	case s.EpochFrom != newest.EventID:
		c.report("I24", d, newest.EventID, look(d.Agent), "the session begins with event %d, and the newest epoch with event %d", s.EpochFrom, newest.EventID)
	case newest.ID != "" && s.Epoch != newest.ID:
		c.report("I24", d, newest.EventID, look(d.Agent), "the session has the id %s, and the newest epoch the id %s", s.Epoch, newest.ID)
	}
}

// i24List looks for what the list should have: it is written after the conversation, when a
// turn ends or the session is changed.
func (c *check) i24List(a *snapshot.Agent) {
	for _, s := range a.Unlisted() {
		c.warn("I24", a.Inbox, 0, repairOf(a.ID), "the list of sessions does not say what the session of %s says", s.Thread)
	}
}
