package invariant

import (
	"maps"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/invariant/exposure"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// i14: a context holds bytes of its thread, its speaking peer and its agent only.
// A canary that stands in a journal or an event of another thread was in its
// context; the prompts, where they are known, say so directly.
func (c *check) i14() {
	for _, a := range c.home.Agents {
		for _, d := range a.All() {
			for _, s := range d.Sightings {
				if k := c.o.Canaries[s.Text]; !k.mayStand(d) {
					c.report("I14", d, 0, look(a.ID), "%s holds a text of %s", s.Where, k.owner())
				}
			}
		}
	}
	for _, p := range c.o.Prompts {
		for _, k := range c.o.Canaries {
			if k.Text != "" && strings.Contains(p.Text, k.Text) && !k.mayBeAsked(p) {
				c.findings = append(c.findings, Finding{"I14", p.Agent, p.Thread, 0, "a prompt holds a text of " + k.owner(), look(p.Agent), Violation})
			}
		}
	}
}

func (k Canary) owner() string {
	return strings.TrimRight(strings.Join([]string{k.Agent, k.Thread, k.Peer}, " "), " ")
}

// mayStand: whoever speaks to an agent stands in its inbox first. Threads do not
// tell who speaks in them, so that the text of a peer is judged by prompts only.
func (k Canary) mayStand(d *snapshot.DB) bool {
	return k.Agent == d.Agent && (d.IsInbox() || k.Thread == "" || k.Thread == d.Thread)
}

func (k Canary) mayBeAsked(p Prompt) bool {
	return k.Agent == p.Agent && (k.Thread == "" || k.Thread == p.Thread) && (k.Peer == "" || k.Peer == p.Peer)
}

// i15 searches one file for the secrets, as they are and as JSON writes them.
func (c *check) i15(file exposure.File) {
	if len(c.o.Secrets) == 0 {
		return
	}
	f, err := file.Open()
	if err != nil {
		return // gone, or a socket; what cannot be read leaks nothing here
	}
	defer func() { _ = f.Close() }()
	if exposure.Holds(f, c.o.Secrets) {
		c.findings = append(c.findings, Finding{"I15", "", "", 0, boundary.Name(file.Full) + " holds a secret", "replace the secret, then remove it from that file", Violation})
	}
}

// i15Texts searches what was printed and served.
func (c *check) i15Texts() {
	for _, name := range slices.Sorted(maps.Keys(c.o.Texts)) {
		if exposure.Holds(strings.NewReader(c.o.Texts[name]), c.o.Secrets) {
			c.findings = append(c.findings, Finding{"I15", "", "", 0, name + " holds a secret", "replace the secret", Violation})
		}
	}
}
