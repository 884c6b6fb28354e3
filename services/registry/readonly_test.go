package registry_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/need"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// health is what status and list say, which must be the same.
func (w *world) health(id string) registryv1.AgentHealth {
	w.Helper()
	st := must2(w.agents.GetAgentStatus(w.Context(), &registryv1.GetAgentStatusRequest{AgentId: id})).GetAgent()
	for _, a := range must2(w.agents.ListAgents(w.Context(), &registryv1.ListAgentsRequest{})).GetAgents() {
		if a.GetAgentId() == id && (a.GetHealth() != st.GetHealth() || a.GetProblem() != st.GetProblem()) {
			w.Errorf("status says %v, list %v", st, a)
		}
	}
	return st.GetHealth()
}

const (
	well     = registryv1.AgentHealth_AGENT_HEALTH_OK
	degraded = registryv1.AgentHealth_AGENT_HEALTH_DEGRADED
)

// A directory that is read-only when the registry starts (RELIABILITY section 5):
// its agent is degraded and gets no work, the others go on; writable again, it
// takes up what waited, without a push.
func TestReadOnlyAgent(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := newWorld(t, home, registry.Config{})
	w.create("a1")
	w.create("a2")
	w.push("a1", "bob", "waits", "")
	w.stop()
	lift := need.ReadOnly(t, filepath.Join(home, "agents", "a1"))
	w = newWorld(t, home, registry.Config{Sweep: 20 * time.Millisecond})
	if _, err := w.threads.PushEvents(t.Context(), pushRequest("a1", "bob", "refused", "")); !fault.Is(err, fault.ReadOnly) {
		t.Errorf("push: %v", err)
	}
	if h := w.health("a1"); h != degraded {
		t.Errorf("a1 is %v", h)
	}
	w.push("a2", "bob", "hello", "")
	w.answer("a2", "hi") // and nothing else is due
	if h := w.health("a2"); h != well {
		t.Errorf("a2 is %v", h)
	}
	lift()
	w.answer("a1", "at last")
	st := must2(w.agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}))
	if st.GetAgent().GetHealth() != well || st.GetInbox().GetLastAckedId() != 1 || st.GetInbox().GetPending() != 0 {
		t.Errorf("writable again: %v", st)
	}
}

// A directory that becomes read-only in the middle of a turn: nothing is
// acknowledged, the agent is degraded, and the same call is good when it can be
// written again.
func TestReadOnlyInMidTurn(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := newWorld(t, home, registry.Config{Sweep: 20 * time.Millisecond}, func(s *setup) { s.sqlite.MaxOpen = 1 })
	w.create("a1")
	w.create("a2")
	w.push("a1", "bob", "hello", "")
	l := must2(w.leases.AcquireLease(t.Context(), &registryv1.AcquireLeaseRequest{Kind: kindRun, AgentId: "a1", Holder: "r1", RequestId: "1"})).GetLease()
	ctx := under(t.Context(), l)
	e := must2(w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})).GetEvents()[0]
	must2(w.turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: 1, Key: e.GetKey(), ThreadId: e.GetThreadId()}))
	lift := need.ReadOnly(t, filepath.Join(home, "agents", "a1"))
	w.push("a2", "bob", "the only database that may be open", "") // a file that is open already can be written
	fin := &registryv1.FinishTurnRequest{AgentId: "a1", InboxId: 1, Key: e.GetKey(), ThreadId: e.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "hi"}
	if _, err := w.turns.FinishTurn(ctx, fin); !fault.Is(err, fault.ReadOnly) {
		t.Errorf("finish: %v", err)
	}
	if h := w.health("a1"); h != degraded {
		t.Errorf("a1 is %v", h)
	}
	lift()
	if r := must2(w.turns.FinishTurn(ctx, fin)); r.GetLastAckedId() != 1 || r.GetReplyEventId() != 2 {
		t.Errorf("finished: %v", r)
	}
	if h := w.health("a1"); h != well {
		t.Errorf("a1 is %v", h)
	}
}
