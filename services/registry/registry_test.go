package registry_test

import (
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// One message through every state: S0-02, S0-06, S0-14, S0-75, S0-78, S0-82,
// S0-85, S0-91, S0-120, S0-123.
func TestOneMessage(t *testing.T) { backendtest.Each(t, testOneMessage) }

func testOneMessage(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	id := w.Push("a1", "bob", "hello", "k1").GetEventIds()[0]
	if again := w.Push("a1", "bob", "hello", "k1"); !again.GetDuplicate() || again.GetEventIds()[0] != id {
		t.Fatalf("repeat: %v", again)
	}
	w.Answer("a1", "hi bob")
	turn, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: id})
	got := backendtest.Must(t, turn, err).GetTurn()
	if got.GetFate() != registryv1.Fate_FATE_REPLIED || got.GetThreadId() != "threads/peers/main-bob" || got.GetDelivery().GetState() != registryv1.DeliveryState_DELIVERY_STATE_PENDING {
		t.Fatalf("turn %v", got)
	}
	p, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: got.GetThreadId()}})
	ev := backendtest.Must(t, p, err).GetEvents()
	if len(ev) != 2 || ev[0].GetSource() != "external:telegram:main:dm:bob:bob" || ev[1].GetSource() != "self" {
		t.Fatalf("events %v", ev)
	}
	st, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"})
	if s := backendtest.Must(t, st, err); s.GetInbox().GetLastAckedId() != id || s.GetInbox().GetPending() != 0 || s.GetOutboundPending() != 1 || !s.GetAgent().GetStarted() {
		t.Fatalf("status %v", s)
	}

	d := w.Due(backendtest.KindDeliver, "d1", time.Minute)
	if len(d) != 1 || len(d[0].GetThreadIds()) != 1 {
		t.Fatalf("due deliveries %v", d)
	}
	ctx := backendtest.Under(t.Context(), d[0].GetLease())
	begin, err := w.Deliveries.BeginDelivery(ctx, &registryv1.BeginDeliveryRequest{AgentId: "a1", ThreadId: got.GetThreadId(), BootId: "b"})
	if backendtest.Must(t, begin, err).GetEvent().GetId() != ev[1].GetId() {
		t.Fatalf("delivery %v", begin)
	}
	fin, err := w.Deliveries.FinishDelivery(ctx, &registryv1.FinishDeliveryRequest{
		AgentId: "a1", ThreadId: got.GetThreadId(), EventId: ev[1].GetId(), Outcome: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SENT, Channel: "xgw", Next: true, BootId: "b",
	})
	if backendtest.Must(t, fin, err).GetNext().GetOutcome() != registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_IDLE {
		t.Fatalf("finish %v", fin)
	}
}

// S0-84: a holder whose lease ran out writes nothing; the next one answers.
func TestExpiredHolderIsRefused(t *testing.T) { backendtest.Each(t, testExpiredHolderIsRefused) }

func testExpiredHolderIsRefused(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hello", "")
	first := w.Brief(backendtest.KindRun, "slow")[0]
	ctx := backendtest.Under(t.Context(), first.GetLease())
	b := backendtest.Must2(w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"}))
	p := b.GetEvents()[0]
	backendtest.Must2(w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()}))

	second := w.Due(backendtest.KindRun, "next", time.Minute)[0] // waits out the ttl
	if second.GetLease().GetToken() <= first.GetLease().GetToken() {
		t.Fatal("the token did not rise")
	}
	fin := &registryv1.FinishTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "late"}
	if _, err := w.Turns.FinishTurn(ctx, fin); !fault.Is(err, fault.LeaseLost) || status.Code(err) != codes.Aborted {
		t.Fatalf("late write: %v", err)
	}
	ctx = backendtest.Under(t.Context(), second.GetLease())
	backendtest.Must2(w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"}))
	begin := &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()}
	if o := backendtest.Must2(w.Turns.BeginTurn(ctx, begin)).GetOutcome(); o != registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_ALONE {
		t.Fatalf("after a lost holder: %v", o)
	}
	begin.Alone = true
	backendtest.Must2(w.Turns.BeginTurn(ctx, begin))
	fin.Text = "once"
	backendtest.Must2(w.Turns.FinishTurn(ctx, fin))
	if again := backendtest.Must2(w.Turns.FinishTurn(ctx, fin)); again.GetReplyEventId() == 0 {
		t.Fatalf("repeat: %v", again)
	}
	ev := backendtest.Must2(w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: p.GetThreadId()}, Filter: "source = 'self'"})).GetEvents()
	if len(ev) != 1 || ev[0].GetContent()[:14] != `{"text":"once"` {
		t.Fatalf("replies %v", ev)
	}
}

// S0-08, S0-09, S0-10: nothing is claimed after a stop; start resumes.
func TestStopAndStart(t *testing.T) { backendtest.Each(t, testStopAndStart) }

func testStopAndStart(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "1", "")
	due := w.Due(backendtest.KindRun, "r1", time.Minute)[0]
	ctx := backendtest.Under(t.Context(), due.GetLease())
	p := backendtest.Must2(w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})).GetEvents()[0]
	backendtest.Must2(w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}))
	_, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: 1, Key: p.GetKey(), ThreadId: p.GetThreadId()})
	if !fault.Is(err, fault.AgentStopped) {
		t.Fatalf("claim after stop: %v", err)
	}
	w.Push("a1", "bob", "2", "")
	w.Release(due.GetLease())
	if d := w.Due(backendtest.KindRun, "r1", 50*time.Millisecond); len(d) != 0 {
		t.Fatalf("a stopped agent is due: %v", d)
	}
	backendtest.Must2(w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}))
	w.Answer("a1", "x")
	st := backendtest.Must2(w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}))
	if st.GetInbox().GetLastAckedId() != 2 || st.GetInbox().GetPending() != 0 {
		t.Fatalf("status %v", st)
	}
}

// S0-69: what was accepted is due again after a restart, without a new push.
func TestRestartFindsWork(t *testing.T) { backendtest.Each(t, testRestartFindsWork) }

func testRestartFindsWork(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Create("quiet")
	w.Push("a1", "bob", "hello", "")
	w.Stop()
	w = o.Start(t, registry.Config{Sweep: time.Hour})
	w.Answer("a1", "hi")
	w.Stop()
	w = o.Start(t, registry.Config{Sweep: time.Hour})
	if d := w.Due(backendtest.KindDeliver, "d1", time.Minute); len(d) != 1 || d[0].GetAgentId() != "a1" {
		t.Fatalf("due deliveries %v", d)
	}
}

// A second registry on the same home is refused with the pid.
func TestHomeIsLocked(t *testing.T) { backendtest.Each(t, testHomeIsLocked) }

func testHomeIsLocked(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	h, err := agentdir.OpenHome(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	_, err = o.Open(t.Context(), registry.Config{}, registry.Deps{Home: h, Logger: slog.New(slog.DiscardHandler), Metrics: obs.NewRegistryMetrics(nil)})
	if !fault.Is(err, fault.HomeLocked) {
		t.Fatalf("second registry: %v", err)
	}
	w.Stop()
}

// What is not done is not erased, and a name that means two people means nobody.
func TestEraseRefused(t *testing.T) { backendtest.Each(t, testEraseRefused) }

func testEraseRefused(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "waiting", "")
	w.StopAgent("a1")
	if _, err := w.Erase("a1", "bob", true); !fault.Is(err, fault.TurnBegun) {
		t.Errorf("a waiting message: %v", err)
	}
	if _, err := w.Erase("a1", "nobody", false); !fault.Is(err, fault.ThreadNotFound) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := w.Erase("a1", "external:", false); err == nil {
		t.Error("an address of nobody")
	}
	r, err := w.Erase("a1", "external:telegram:main:dm:12:bob", false)
	if err == nil && r.GetPeerId() != "bob" {
		t.Errorf("by address: %v", r)
	}
}
