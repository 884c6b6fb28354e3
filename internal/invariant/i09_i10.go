package invariant

import (
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store"
)

// i9: what was said has one delivery under the key of its event, and in the end
// was sent or is dead.
func (c *check) i9(d *snapshot.DB) {
	rows := map[int64]bool{}
	for _, v := range d.Deliveries {
		rows[v.EventID] = true
		e, ok := d.Event(v.EventID)
		switch {
		case !ok:
			c.report("I9", d, v.EventID, repairOf(d.Agent), "event %d has a delivery and is gone", v.EventID)
		case !spoken(e):
			c.report("I9", d, v.EventID, look(d.Agent), "event %d has a delivery and is not a message of the agent", v.EventID)
		case e.DeliveryKey != v.Key:
			c.report("I9", d, v.EventID, look(d.Agent), "the delivery of event %d has the key of another event", v.EventID)
		}
		open := v.State == store.DeliveryPending || v.State == store.DeliverySending
		if c.o.Drained && open {
			c.report("I9", d, v.EventID, look(d.Agent), "event %d is %s and nothing is left to do", v.EventID, v.State)
		}
		c.i9Internal(d, v)
	}
	for _, out := range d.SentEvents() {
		if !rows[out] {
			c.report("I9", d, out, look(d.Agent), "event %d was said and has no delivery", out)
		}
	}
}

// i9Internal: a message that was sent to another agent is in its inbox.
func (c *check) i9Internal(d *snapshot.DB, v snapshot.Delivery) {
	if v.State != store.DeliverySent || v.Channel != "internal" {
		return
	}
	to, _, _ := strings.Cut(v.ProviderID, "/")
	a := c.agentNamed(to)
	if a == nil || !sound(a.Inbox) {
		return // not looked at, or removed since
	}
	if _, ok := a.Inbox.Dedupe["push:"+v.Key]; !ok {
		c.report("I9", d, v.EventID, look(d.Agent), "event %d was sent to agent %s, whose inbox has never had it", v.EventID, to)
	}
}

// i9Sink: what the journal says was sent has arrived, and nothing else has.
func (c *check) i9Sink() {
	if c.o.Sink == nil {
		return
	}
	arrived := map[string]bool{}
	for _, s := range c.o.Sink {
		arrived[snapshot.KeyOf(s.Key)] = true
	}
	known, whole := map[string]bool{}, c.o.Agent == ""
	for _, a := range c.home.Agents {
		for _, d := range a.Threads {
			whole = whole && sound(d)
			for _, v := range d.Deliveries {
				known[v.Key] = true
				ours := v.Channel == "console" || v.Channel == "internal"
				if v.State == store.DeliverySent && !ours && !arrived[v.Key] {
					c.report("I9", d, v.EventID, look(d.Agent), "event %d was sent and has not arrived", v.EventID)
				}
			}
		}
	}
	told := map[string]bool{}
	for _, s := range c.o.Sink {
		if whole && !known[snapshot.KeyOf(s.Key)] && !told[s.Key] {
			told[s.Key] = true
			c.findings = append(c.findings, Finding{"I9", s.Agent, s.Thread, 0, "a message arrived under key " + s.Key + ", which no delivery has", look(s.Agent), Violation})
		}
	}
}

// i10: an event, or a part of it, arrives under one key, and each time but the
// first with the flag.
func (c *check) i10() {
	type event struct {
		agent, thread, part string
		id                  int64
	}
	first := map[event]string{}
	for _, s := range c.o.Sink {
		e := event{s.Agent, s.Thread, snapshot.PartOf(s.Key), s.EventID}
		key, again := first[e]
		what := ""
		switch {
		case !again:
			first[e] = s.Key
		case key != s.Key:
			what = "arrived under two keys"
		case !s.MaybeDuplicate:
			what = "arrived again without the flag"
		}
		if what != "" {
			c.findings = append(c.findings, Finding{"I10", s.Agent, s.Thread, s.EventID, "event " + itoa(s.EventID) + " " + what, look(s.Agent), Violation})
		}
	}
}

// retried reports whether a dead letter was sent again on demand: its age counts
// from then.
func retried(d *snapshot.DB, id int64) bool {
	i := slices.IndexFunc(d.Deliveries, func(v snapshot.Delivery) bool { return v.EventID == id })
	e, ok := d.Event(id)
	return ok && i >= 0 && d.Deliveries[i].Created.Sub(stamp(e.CreatedAt)) > time.Second
}
