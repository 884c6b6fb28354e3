//go:build proof

package main

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/invariant/database"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// stoppedRegistries are the instants at which a registry is stopped while it writes for
// a holder: on either side of the transactions.
var stoppedRegistries = []string{"T1.before", "T4.before", "T6.after", "T7.before", "T8.before", "D1.before", "D3.before"}

// cluster is round for several registries over PostgreSQL. Who is stopped is a runner or
// a deliverer; or a registry, and then the holder that it writes for is killed. Others
// take over through the other registry.
func (z *zombieDrill) cluster(db *pgtest.Cluster) func(*testing.T, string) bool {
	return func(t *testing.T, label string) bool {
		c, sink := newCluster(t, db.Database(t)), world.NewSink(t)
		defer c.kill()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		c.Create(t, "a1", sink.Config())
		c.trap(t, label, 1, "stop")
		l := c.load("")
		l.send(ctx,
			&message{agent: "a1", peer: "bob", n: 1, kind: "run"}, &message{agent: "a1", peer: "bob", n: 2, kind: "echo"},
			&message{agent: "a1", peer: "carol", n: 3, kind: "run"},
		)
		var zombie *part
		for zombie == nil { // nothing but the file tells which of them it is
			if zombie = c.caught(label); ctx.Err() != nil {
				t.Errorf("%s: nobody came by%s", label, c.logs())
				return true
			}
			<-time.After(time.Millisecond)
		}
		// What is asked from now on is asked of a registry that answers.
		whole := c.parts[0]
		if whole == zombie {
			whole = c.parts[1]
		}
		site := *c.Site
		site.Client = world.NewClient(c.dialAs(t, "owner", "dns:///"+whole.address), nil)
		held := c.held(t, strings.HasPrefix(label, "D"))
		holder := c.holder(held.GetHolder())
		if zombie.kind == "registry" {
			holder.Kill()
		} else if holder != zombie { // the term was over before we looked, and this is the next one
			held.Token--
		}
		<-l.done()
		// Late through the registry that has slept, if it is one, else through each.
		late := []*part{c.parts[0], c.parts[1]}
		if zombie.kind == "registry" {
			late = []*part{zombie}
		}
		zombie.Signal(syscall.SIGCONT)
		answer := refused // the worst of them
		for _, at := range late {
			v := lateBy(ctx, t, &site, c.dialAs(t, holder.name, "dns:///"+at.address), held)
			if answer == refused || v == wrote {
				answer = v
			}
		}
		if zombie.kind != "registry" {
			zombie.Says("lost") // "lease lost" by its own clock, "the lease is lost" by a registry's word
		}
		again := c.load("")
		again.send(ctx, &message{agent: "a1", peer: "bob", n: 4, kind: "echo"}, &message{agent: "a1", peer: "dave", n: 5, kind: "run"})
		<-again.done()
		zombie.Signal(syscall.SIGTERM)
		if code := zombie.Exit(); code != 0 {
			t.Errorf("%s: the zombie ended with %d; its log:\n%s", label, code, zombie.Log())
		}
		l.sent = append(l.sent, again.sent...)
		a := &audit{TB: t, load: l, sink: sink}
		a.check()
		if !a.clean() || answer != refused && answer != unjudged {
			t.Errorf("%s: refused=%v %s; the zombie's log:\n%s", label, answer == refused, &a.figures, zombie.Log())
		}
		return z.count(a.figures, answer)
	}
}

// held is the newest term under which a1 is worked on, or delivered for, over or not.
func (c *cluster) held(t *testing.T, delivers bool) *registryv1.Lease {
	t.Helper()
	resource := lease.AgentResource("a1")
	if delivers {
		resource = lease.DeliverResource("a1")
	}
	h, err := database.Read(t.Context(), c.dsn, snapshot.Options{Agent: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range h.Leases {
		if l.Resource == resource {
			return &registryv1.Lease{Resource: resource, Token: l.Token, Holder: l.Holder}
		}
	}
	t.Fatalf("%s has no row", resource)
	return nil
}
