package invariant

import (
	"slices"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store"
)

var ends = []string{
	string(store.FateReplied), string(store.FateSilent), string(store.FateMerged),
	string(store.FateAborted), string(store.FateDead), string(store.FateNotAMessage),
}

// i3Inbox: a fate is one of the known, belongs to the event that stands under
// its id, and is the one that the thread has.
func (c *check) i3Inbox(a *snapshot.Agent) {
	in := a.Inbox
	turns, unread := map[string]snapshot.Turn{}, false
	for _, d := range a.Threads {
		unread = unread || !sound(d)
		for _, t := range d.Turns {
			turns[d.Thread+" "+t.Key] = t
		}
	}
	for _, f := range in.Fates {
		e, ok := in.Event(f.ID)
		t, begun := turns[f.Thread+" "+f.Key]
		switch {
		case !ok:
			c.report("I3", in, f.ID, repairOf(a.ID), "event %d has the fate %s and is gone", f.ID, f.Fate)
		case !slices.Contains(ends, f.Fate):
			c.report("I3", in, f.ID, look(a.ID), "event %d has the fate %q, which is none", f.ID, f.Fate)
		case e.Key != f.Key:
			c.report("I3", in, f.ID, look(a.ID), "the fate of event %d was given to another event under its id", f.ID)
		case f.Thread == "" || (unread && !begun): // no thread was involved, or it is found by I17
		case !begun:
			c.report("I3", in, f.ID, look(a.ID), "event %d is %s, and thread %s knows nothing of it", f.ID, f.Fate, f.Thread)
		case t.State != store.TurnDone || t.Fate != f.Fate:
			c.report("I3", in, f.ID, look(a.ID), "event %d is %s in the inbox and %s %s in %s", f.ID, f.Fate, t.State, t.Fate, f.Thread)
		}
		if f.Fate == string(store.FateDead) && !in.Dead[f.ID] {
			c.report("I3", in, f.ID, look(a.ID), "event %d is dead and not among the dead letters", f.ID)
		}
	}
}

// i3Thread: replied means exactly one reply event, and any other fate none.
func (c *check) i3Thread(d *snapshot.DB) {
	for _, of := range d.Unasked() {
		c.report("I3", d, d.Dedupe[of+":out"].EventID, look(d.Agent), "reply event %d answers no turn (%s)", d.Dedupe[of+":out"].EventID, of)
	}
	for _, m := range d.InvalidMembers() {
		c.report("I3", d, m.InboxID, look(d.Agent), "inbox event %d %s", m.InboxID, m.Why)
	}
	for _, t := range d.Turns {
		out, said := d.Dedupe[t.Key+":out"]
		_, there := d.Event(out.EventID)
		replied := t.State == store.TurnDone && t.Fate == string(store.FateReplied)
		switch {
		case replied && !said:
			c.report("I3", d, t.InboxID, look(d.Agent), "inbox event %d is replied and has no reply event", t.InboxID)
		case replied && !there:
			c.report("I3", d, out.EventID, repairOf(d.Agent), "reply event %d to inbox event %d is gone", out.EventID, t.InboxID)
		case replied && out.EventID != t.ReplyID:
			c.report("I3", d, t.InboxID, look(d.Agent), "inbox event %d has two replies, events %d and %d", t.InboxID, out.EventID, t.ReplyID)
		case !replied && said:
			c.report("I3", d, t.InboxID, look(d.Agent), "inbox event %d has reply event %d and is %s %s", t.InboxID, out.EventID, t.State, t.Fate)
		case t.State == store.TurnDone && t.Fate == string(store.FateDead) && t.ErrorID == 0:
			c.report("I3", d, t.InboxID, look(d.Agent), "inbox event %d is dead and no error event says why", t.InboxID)
		}
	}
}

// i3Lost: what a thread has worked on, its inbox has had. Ids that a restore left
// out are below the next one. At work the threads are read later than the inbox.
func (c *check) i3Lost(a *snapshot.Agent) {
	if c.o.Live && !c.home.Shared {
		return
	}
	for _, d := range a.Threads {
		for _, t := range a.Lost(d) {
			c.report("I3", d, t.InboxID, repairOf(a.ID), "inbox event %d was worked on here, and the inbox has lost it", t.InboxID)
		}
	}
}

// i3History: what was acknowledged is there, and in the end has a fate. A push
// under one key was accepted once.
func (c *check) i3History() {
	if c.o.History == nil {
		return
	}
	byKey := map[string][]int64{}
	for _, p := range c.o.History.Pushes {
		a := c.agentNamed(p.Agent)
		if a == nil || !sound(a.Inbox) {
			continue
		}
		if first, ok := byKey[p.Agent+" "+p.Key]; ok && p.Key != "" && !slices.Equal(first, p.IDs) {
			c.report("I3", a.Inbox, 0, look(a.ID), "the push under key %q was accepted as events %v and again as %v", p.Key, first, p.IDs)
		}
		byKey[p.Agent+" "+p.Key] = p.IDs
		for _, id := range p.IDs {
			fated := slices.ContainsFunc(a.Inbox.Fates, func(f snapshot.Fate) bool { return f.ID == id })
			if _, ok := a.Inbox.Event(id); !ok {
				c.report("I3", a.Inbox, id, repairOf(a.ID), "event %d was acknowledged and is lost", id)
			} else if c.o.Drained && !fated {
				c.report("I3", a.Inbox, id, look(a.ID), "event %d was acknowledged and never got a fate", id)
			}
		}
	}
}
