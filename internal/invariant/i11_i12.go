package invariant

import (
	"strconv"
	"time"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func stamp(s string) time.Time { return thread.ParseStamp(s) }

// i11: in a thread, messages stand in the order of the inbox, replies in the
// order of their messages, and replies arrive in their own order.
func (c *check) i11(d *snapshot.DB) {
	var inbound, reply, of int64
	for _, t := range d.Turns { // by inbox id
		if t.InboundID != 0 && t.InboundID < inbound {
			c.report("I11", d, t.InboxID, look(d.Agent), "inbox event %d stands before one that is older", t.InboxID)
		}
		if t.ReplyID != 0 && t.ReplyID < reply {
			c.report("I11", d, t.InboxID, look(d.Agent), "inbox event %d was answered before %d, which is older", t.InboxID, of)
		}
		inbound = max(inbound, t.InboundID)
		if t.ReplyID > reply {
			reply, of = t.ReplyID, t.InboxID
		}
	}
	var last int64
	seen := map[int64]bool{}
	for _, s := range c.o.Sink {
		if s.Agent != d.Agent || s.Thread != d.Thread || seen[s.EventID] || retried(d, s.EventID) {
			continue
		}
		if s.EventID < last {
			c.report("I11", d, s.EventID, look(d.Agent), "event %d arrived after event %d", s.EventID, last)
		}
		seen[s.EventID], last = true, max(last, s.EventID)
	}
}

// i12: with services at work, no turn of a started agent stays claimed for more
// than twice the ttl without a live lease. Where nobody works a claimed turn
// waits for the next holder, as it must.
func (c *check) i12(a *snapshot.Agent, d *snapshot.DB) {
	started := a.Inbox.Desired == "started" || (a.Inbox.Desired == "" && a.Inbox.Subscribed)
	if !c.o.Live || !started || c.home.LeasesProblem != "" {
		return
	}
	ttl, since := lease.DefaultTTL, time.Time{}
	for _, l := range c.home.Leases {
		if l.Resource != lease.AgentResource(a.ID) {
			continue
		}
		if l.Alive && !l.Released {
			return
		}
		ttl, since = l.TTL, l.Expires
	}
	for _, t := range d.Turns {
		begun := t.Claimed
		if since.After(begun) {
			begun = since
		}
		if t.State == store.TurnClaimed && c.o.Now.Sub(begun) > 2*ttl {
			c.report("I12", d, t.InboxID, "see 'agentctl doctor': is a runner there?", "inbox event %d has been claimed for %s and nobody holds the lease", t.InboxID, c.o.Now.Sub(begun).Round(time.Second))
		}
	}
}

// i20: among registries that share databases an agent that shall work and has something
// to do stands among those who have work, and no other does; nobody else would find it.
func (c *check) i20(a *snapshot.Agent) {
	in := a.Inbox
	if has := in.Desired == "started" && in.Sequence > in.Acks[thread.Inbox]; c.home.Shared && has != a.Due {
		c.report("I20", in, 0, look(a.ID), "the agent has work: %v; it stands among those who have: %v", has, a.Due)
	}
}
