package invariant

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/lease"
)

// i4: in a database the accepted tokens of a resource never fall.
func (c *check) i4(d *snapshot.DB) {
	type commit struct {
		id    int64
		token uint64
	}
	byResource := map[string][]commit{}
	for key, v := range d.Dedupe {
		if r := snapshot.Under(d.Agent, key, v.Token); r != "" {
			byResource[r] = append(byResource[r], commit{v.EventID, v.Token})
		}
	}
	for _, r := range slices.Sorted(maps.Keys(byResource)) {
		list := byResource[r]
		slices.SortFunc(list, func(a, b commit) int { return cmp.Compare(a.id, b.id) })
		for i := 1; i < len(list); i++ {
			if list[i].token < list[i-1].token {
				c.report("I4", d, list[i].id, look(d.Agent), "event %d was written under %s token %d after event %d under token %d", list[i].id, r, list[i].token, list[i-1].id, list[i-1].token)
			}
		}
	}
}

// i4History: the same over the writes that were acknowledged.
func (c *check) i4History() {
	if c.o.History == nil {
		return
	}
	last := map[Commit]uint64{}
	for _, w := range c.o.History.Commits {
		k := Commit{w.Agent, w.Thread, w.Resource, 0}
		if w.Token < last[k] {
			c.findings = append(c.findings, Finding{"I4", w.Agent, w.Thread, 0, "a write under " + w.Resource + " was accepted with an older token than one before it", look(w.Agent), Violation})
		}
		last[k] = max(last[k], w.Token)
	}
}

// i5: the fence of a database covers every commit in it; a holder that was not
// fenced there could write below a token that was accepted.
func (c *check) i5(d *snapshot.DB) {
	most := d.Accepted()
	for _, r := range slices.Sorted(maps.Keys(most)) {
		if most[r] > d.Fences[r] {
			c.report("I5", d, 0, repairOf(d.Agent), "something was written under %s token %d, and the fence stands at %d", r, most[r], d.Fences[r])
		}
	}
}

// i6: a token has one holder for ever. The ledger, or the fence of the inbox when
// the ledger is lost, stands at or above every token ever accepted, because the
// next one is counted from there.
func (c *check) i6() {
	if c.home.LeasesProblem != "" {
		c.findings = append(c.findings, Finding{
			Invariant: "I6", What: "the lease ledger cannot be read: " + c.home.LeasesProblem,
			Fix: "stop the services and move registry.db away: tokens go on from the inboxes", Severity: Violation,
		})
		return
	}
	ledger := map[string]uint64{}
	for _, l := range c.home.Leases {
		ledger[l.Resource] = l.Token
	}
	for _, a := range c.home.Agents {
		for _, d := range a.All() {
			for _, r := range slices.Sorted(maps.Keys(d.Fences)) {
				if next := max(ledger[r], a.Inbox.Fences[r]); sound(a.Inbox) && d.Fences[r] > next {
					c.report("I6", d, 0, repairOf(a.ID), "token %d of %s was accepted here, and the next grants count from %d", d.Fences[r], r, next)
				} else if !c.o.Live && sound(a.Inbox) && r == lease.AgentResource(a.ID) && d.Fences[r] > a.Inbox.Fences[r] {
					// A new holder seals the inbox before anything else.
					c.warn("I6", d, 0, repairOf(a.ID), "token %d of %s was accepted here, and the fence of the inbox stands at %d", d.Fences[r], r, a.Inbox.Fences[r])
				}
			}
		}
	}
}

func (c *check) i6History() {
	if c.o.History == nil {
		return
	}
	type term struct {
		resource string
		token    uint64
	}
	holder, last := map[term]string{}, map[string]uint64{}
	for _, g := range c.o.History.Grants {
		t := term{g.Resource, g.Token}
		_, agent, _ := strings.Cut(g.Resource, "/")
		h, again := holder[t]
		what := ""
		switch {
		case again && h != g.Holder:
			what = "a token of " + g.Resource + " was granted to " + h + " and to " + g.Holder
		case !again && g.Token <= last[g.Resource]:
			what = "a token of " + g.Resource + " was granted that is not above the one before it"
		}
		if what != "" {
			c.findings = append(c.findings, Finding{"I6", agent, "", 0, what, look(agent), Violation})
		}
		holder[t] = g.Holder
		last[g.Resource] = max(last[g.Resource], g.Token)
	}
}
