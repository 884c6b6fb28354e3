package standalone_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/internal/testing/need"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// health is what status and list say, which must be the same.
func (w *world) health(id string) registryv1.AgentHealth {
	w.Helper()
	st := backendtest.Must2(w.Agents.GetAgentStatus(w.Context(), &registryv1.GetAgentStatusRequest{AgentId: id})).GetAgent()
	for _, a := range backendtest.Must2(w.Agents.ListAgents(w.Context(), &registryv1.ListAgentsRequest{})).GetAgents() {
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
	w := start(t, backendtest.Options{Home: home}, registry.Config{})
	w.Create("a1")
	w.Create("a2")
	w.Push("a1", "bob", "waits", "")
	w.Stop()
	lift := need.ReadOnly(t, filepath.Join(home, "agents", "a1"))
	w = start(t, backendtest.Options{Home: home}, registry.Config{Sweep: 20 * time.Millisecond})
	if _, err := w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a1", "bob", "refused", "")); !fault.Is(err, fault.ReadOnly) {
		t.Errorf("push: %v", err)
	}
	if h := w.health("a1"); h != degraded {
		t.Errorf("a1 is %v", h)
	}
	w.Push("a2", "bob", "hello", "")
	w.Answer("a2", "hi") // and nothing else is due
	if h := w.health("a2"); h != well {
		t.Errorf("a2 is %v", h)
	}
	lift()
	w.Answer("a1", "at last")
	st := backendtest.Must2(w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}))
	if st.GetAgent().GetHealth() != well || st.GetInbox().GetLastAckedId() != 1 || st.GetInbox().GetPending() != 0 {
		t.Errorf("writable again: %v", st)
	}
}

// A directory that becomes read-only in the middle of a turn: nothing is
// acknowledged, the agent is degraded, and the same call is good when it can be
// written again.
func TestReadOnlyInMidTurn(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	w := start(t, backendtest.Options{Home: home, MaxOpen: 1}, registry.Config{Sweep: 20 * time.Millisecond})
	w.Create("a1")
	w.Create("a2")
	w.Push("a1", "bob", "hello", "")
	l := backendtest.Must2(w.Leases.AcquireLease(t.Context(), &registryv1.AcquireLeaseRequest{Kind: backendtest.KindRun, AgentId: "a1", Holder: "r1", RequestId: "1"})).GetLease()
	ctx := backendtest.Under(t.Context(), l)
	e := backendtest.Must2(w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})).GetEvents()[0]
	backendtest.Must2(w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: 1, Key: e.GetKey(), ThreadId: e.GetThreadId()}))
	lift := need.ReadOnly(t, filepath.Join(home, "agents", "a1"))
	w.Push("a2", "bob", "the only database that may be open", "") // a file that is open already can be written
	fin := &registryv1.FinishTurnRequest{AgentId: "a1", InboxId: 1, Key: e.GetKey(), ThreadId: e.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "hi"}
	if _, err := w.Turns.FinishTurn(ctx, fin); !fault.Is(err, fault.ReadOnly) {
		t.Errorf("finish: %v", err)
	}
	if h := w.health("a1"); h != degraded {
		t.Errorf("a1 is %v", h)
	}
	lift()
	if r := backendtest.Must2(w.Turns.FinishTurn(ctx, fin)); r.GetLastAckedId() != 1 || r.GetReplyEventId() != 2 {
		t.Errorf("finished: %v", r)
	}
	if h := w.health("a1"); h != well {
		t.Errorf("a1 is %v", h)
	}
}
