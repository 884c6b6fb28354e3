package registry_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// F10: an agent is removed within seconds whatever its workers do: a deliverer that gives its
// lease back and at once asks for it again, because there is a reply that it cannot deliver,
// and workers that do not give theirs back. A runner has noticed that its lease has ended
// before the agent is gone.
func TestRemovalEndsLeases(t *testing.T) { backendtest.Each(t, testRemovalEndsLeases) }

func testRemovalEndsLeases(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	for _, c := range []struct {
		name    string
		kind    registryv1.LeaseKind
		yields  bool // gives its lease back on request, and asks again
		stopped bool // removed without force
	}{
		{"polite-deliverer", backendtest.KindDeliver, true, false},
		{"idle-deliverer", backendtest.KindDeliver, true, true},
		{"busy-deliverer", backendtest.KindDeliver, false, false},
		{"busy-runner", backendtest.KindRun, false, false},
	} {
		w.Create(c.name)
		w.Push(c.name, "bob", "hello", "")
		w.Answer(c.name, "hi")
		if c.kind == backendtest.KindRun {
			w.Push(c.name, "bob", "more", "")
		}
		if c.stopped {
			w.StopAgent(c.name)
		}
		h := work(t, w, c.kind, c.name, c.yields)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := w.Agents.DeleteAgent(ctx, &registryv1.DeleteAgentRequest{AgentId: c.name, Force: !c.stopped})
		cancel()
		if took := time.Since(began); err != nil || took > 15*time.Second {
			t.Errorf("%s: removed after %v: %v", c.name, took, err)
		}
		if lost := h.end(); !lost && !c.yields && c.kind == backendtest.KindRun {
			t.Errorf("%s: the agent was gone before its runner had noticed", c.name)
		}
		if err == nil && w.Have(c.name) {
			t.Errorf("%s is there", c.name)
		}
	}
}

type busy struct {
	cancel context.CancelFunc
	g      sync.WaitGroup
	lost   bool
}

// end ends the worker and reports whether it has been told that its lease is lost.
func (b *busy) end() bool {
	b.cancel()
	b.g.Wait()
	return b.lost
}

// work takes the lease of an agent and renews it, as a worker does.
func work(t *testing.T, w *backendtest.World, kind registryv1.LeaseKind, agent string, yields bool) *busy {
	const ttl = 3 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	b := &busy{cancel: cancel}
	poll := func() *registryv1.Lease {
		for ctx.Err() == nil {
			r, err := w.Leases.AcquireDueLease(ctx, &registryv1.AcquireDueLeaseRequest{
				Kind: kind, Holder: "h-" + agent, RequestId: time.Now().Format(time.RFC3339Nano), MaxNew: 1,
				Wait: backendtest.DurationOf(time.Minute), Ttl: backendtest.DurationOf(ttl),
			})
			if err == nil && len(r.GetDue()) > 0 {
				return r.GetDue()[0].GetLease()
			}
		}
		return nil
	}
	l := poll()
	if kind == backendtest.KindRun { // a turn is under way: its tools may work in the directory
		under := backendtest.Under(ctx, l)
		batch, err := w.Turns.OpenBatch(under, &registryv1.OpenBatchRequest{AgentId: agent})
		e := backendtest.Must(t, batch, err).GetEvents()[0]
		begun, err := w.Turns.BeginTurn(under, &registryv1.BeginTurnRequest{AgentId: agent, InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
		backendtest.Must(t, begun, err)
	}
	b.g.Go(func() {
		tick := time.NewTicker(ttl / 30)
		defer tick.Stop()
		for l != nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			r, err := w.Leases.RenewLease(ctx, &registryv1.RenewLeaseRequest{Resource: l.GetResource(), Token: l.GetToken(), Holder: l.GetHolder()})
			if fault.Is(err, fault.LeaseLost) {
				b.lost = true
				return
			}
			if r.GetYieldRequested() && yields {
				_, _ = w.Leases.ReleaseLease(ctx, &registryv1.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()})
				l = poll()
			}
		}
	})
	return b
}
