package registry_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/fault"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

func durationOf(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

const (
	kindRun     = registryv1.LeaseKind_LEASE_KIND_RUN
	kindDeliver = registryv1.LeaseKind_LEASE_KIND_DELIVER
)

// answer does one whole turn and its delivery by hand, as a runner and a
// deliverer would, and returns the two leases.
func (w *world) answer(agent, text string) {
	w.Helper()
	due := w.due(kindRun, "r1", time.Minute)
	if len(due) != 1 || due[0].GetAgentId() != agent {
		w.Fatalf("due %v", due)
	}
	ctx := under(w.Context(), due[0].GetLease())
	b, err := w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	for _, p := range must(w.T, b, err).GetEvents() {
		begun, err := w.turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
		if o := must(w.T, begun, err).GetOutcome(); o != registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO {
			w.Fatalf("outcome %v", o)
		}
		fin, err := w.turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
			AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: text,
		})
		must(w.T, fin, err)
	}
	w.release(due[0].GetLease())
}

// One message through every state: S0-02, S0-06, S0-14, S0-75, S0-78, S0-82,
// S0-85, S0-91, S0-120, S0-123.
func TestOneMessage(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	id := w.push("a1", "bob", "hello", "k1").GetEventIds()[0]
	if again := w.push("a1", "bob", "hello", "k1"); !again.GetDuplicate() || again.GetEventIds()[0] != id {
		t.Fatalf("repeat: %v", again)
	}
	w.answer("a1", "hi bob")
	turn, err := w.turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: id})
	got := must(t, turn, err).GetTurn()
	if got.GetFate() != registryv1.Fate_FATE_REPLIED || got.GetThreadId() != "threads/peers/main-bob" || got.GetDelivery().GetState() != registryv1.DeliveryState_DELIVERY_STATE_PENDING {
		t.Fatalf("turn %v", got)
	}
	p, err := w.threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: got.GetThreadId()}})
	ev := must(t, p, err).GetEvents()
	if len(ev) != 2 || ev[0].GetSource() != "external:telegram:main:dm:bob:bob" || ev[1].GetSource() != "self" {
		t.Fatalf("events %v", ev)
	}
	st, err := w.agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"})
	if s := must(t, st, err); s.GetInbox().GetLastAckedId() != id || s.GetInbox().GetPending() != 0 || s.GetOutboundPending() != 1 || !s.GetAgent().GetStarted() {
		t.Fatalf("status %v", s)
	}

	d := w.due(kindDeliver, "d1", time.Minute)
	if len(d) != 1 || len(d[0].GetThreadIds()) != 1 {
		t.Fatalf("due deliveries %v", d)
	}
	ctx := under(t.Context(), d[0].GetLease())
	begin, err := w.deliveries.BeginDelivery(ctx, &registryv1.BeginDeliveryRequest{AgentId: "a1", ThreadId: got.GetThreadId(), BootId: "b"})
	if must(t, begin, err).GetEvent().GetId() != ev[1].GetId() {
		t.Fatalf("delivery %v", begin)
	}
	fin, err := w.deliveries.FinishDelivery(ctx, &registryv1.FinishDeliveryRequest{
		AgentId: "a1", ThreadId: got.GetThreadId(), EventId: ev[1].GetId(), Outcome: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SENT, Channel: "xgw", Next: true, BootId: "b",
	})
	if must(t, fin, err).GetNext().GetOutcome() != registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_IDLE {
		t.Fatalf("finish %v", fin)
	}
}

// S0-84: a holder whose lease ran out writes nothing; the next one answers.
func TestExpiredHolderIsRefused(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	w.push("a1", "bob", "hello", "")
	first := w.brief(kindRun, "slow")[0]
	ctx := under(t.Context(), first.GetLease())
	b := must2(w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"}))
	p := b.GetEvents()[0]
	must2(w.turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()}))

	second := w.due(kindRun, "next", time.Minute)[0] // waits out the ttl
	if second.GetLease().GetToken() <= first.GetLease().GetToken() {
		t.Fatal("the token did not rise")
	}
	fin := &registryv1.FinishTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "late"}
	if _, err := w.turns.FinishTurn(ctx, fin); !fault.Is(err, fault.LeaseLost) || status.Code(err) != codes.Aborted {
		t.Fatalf("late write: %v", err)
	}
	ctx = under(t.Context(), second.GetLease())
	must2(w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"}))
	begin := &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()}
	if o := must2(w.turns.BeginTurn(ctx, begin)).GetOutcome(); o != registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_ALONE {
		t.Fatalf("after a lost holder: %v", o)
	}
	begin.Alone = true
	must2(w.turns.BeginTurn(ctx, begin))
	fin.Text = "once"
	must2(w.turns.FinishTurn(ctx, fin))
	if again := must2(w.turns.FinishTurn(ctx, fin)); again.GetReplyEventId() == 0 {
		t.Fatalf("repeat: %v", again)
	}
	ev := must2(w.threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: p.GetThreadId()}, Filter: "source = 'self'"})).GetEvents()
	if len(ev) != 1 || ev[0].GetContent()[:14] != `{"text":"once"` {
		t.Fatalf("replies %v", ev)
	}
}

// A message written with plain SQLite makes the agent due by the watch alone:
// the sweep of this registry comes once an hour.
func TestForeignPushIsSeen(t *testing.T) {
	home := t.TempDir()
	w := newWorld(t, home, registry.Config{Sweep: time.Hour})
	w.create("a1")
	w.push("a1", "bob", "first", "")
	w.answer("a1", "1") // the inbox is open and watched now
	db, err := sql.Open("sqlite", filepath.Join(home, "agents/a1/inbox/events.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "INSERT INTO events(source,type,content) VALUES('external:telegram:main:dm:eve:eve','message','{\"text\":\"behind our back\"}')"); err != nil {
		t.Fatal(err)
	}
	w.answer("a1", "2")
	st := must2(w.agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}))
	if st.GetInbox().GetLastAckedId() != 2 {
		t.Fatalf("status %v", st)
	}
}

// S0-08, S0-09, S0-10: nothing is claimed after a stop; start resumes.
func TestStopAndStart(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	w.push("a1", "bob", "1", "")
	due := w.due(kindRun, "r1", time.Minute)[0]
	ctx := under(t.Context(), due.GetLease())
	p := must2(w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})).GetEvents()[0]
	must2(w.agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}))
	_, err := w.turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: 1, Key: p.GetKey(), ThreadId: p.GetThreadId()})
	if !fault.Is(err, fault.AgentStopped) {
		t.Fatalf("claim after stop: %v", err)
	}
	w.push("a1", "bob", "2", "")
	w.release(due.GetLease())
	if d := w.due(kindRun, "r1", 50*time.Millisecond); len(d) != 0 {
		t.Fatalf("a stopped agent is due: %v", d)
	}
	must2(w.agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}))
	w.answer("a1", "x")
	st := must2(w.agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}))
	if st.GetInbox().GetLastAckedId() != 2 || st.GetInbox().GetPending() != 0 {
		t.Fatalf("status %v", st)
	}
}

// S0-69: what was accepted is due again after a restart, without a new push.
func TestRestartFindsWork(t *testing.T) {
	home := t.TempDir()
	w := newWorld(t, home, registry.Config{})
	w.create("a1")
	w.create("quiet")
	w.push("a1", "bob", "hello", "")
	w.stop()
	w = newWorld(t, home, registry.Config{Sweep: time.Hour})
	w.answer("a1", "hi")
	w.stop()
	w = newWorld(t, home, registry.Config{Sweep: time.Hour})
	if d := w.due(kindDeliver, "d1", time.Minute); len(d) != 1 || d[0].GetAgentId() != "a1" {
		t.Fatalf("due deliveries %v", d)
	}
}

// S0-11: a directory that vanishes is told and stops nobody else.
func TestVanishedDirectory(t *testing.T) {
	home := t.TempDir()
	w := newWorld(t, home, registry.Config{})
	w.create("a1")
	w.create("a2")
	w.push("a1", "bob", "1", "")
	if err := os.RemoveAll(filepath.Join(home, "agents", "a1")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}); !fault.Is(err, fault.AgentNotFound) {
		t.Fatalf("status: %v", err)
	}
	if _, err := w.threads.PushEvents(t.Context(), pushRequest("a1", "bob", "2", "")); !fault.Is(err, fault.AgentNotFound) {
		t.Fatalf("push: %v", err)
	}
	l := must2(w.agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{}))
	if len(l.GetAgents()) != 1 || l.GetAgents()[0].GetAgentId() != "a2" {
		t.Fatalf("list %v", l)
	}
	w.push("a2", "bob", "1", "")
	w.answer("a2", "still here")
	w.create("a1")
	w.push("a1", "bob", "new life", "")
	w.answer("a1", "hi")
}

// A second registry on the same home is refused with the pid.
func TestHomeIsLocked(t *testing.T) {
	home := t.TempDir()
	w := newWorld(t, home, registry.Config{})
	_, err := depsOf(t, home).open(context.Background(), registry.Config{})
	if !fault.Is(err, fault.HomeLocked) {
		t.Fatalf("second registry: %v", err)
	}
	w.stop()
}
