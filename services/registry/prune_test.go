package registry_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// toil answers every waiting message of agent with a call, a tool and an answer.
func (w *world) toil(agent string, fate registryv1.Fate) {
	w.Helper()
	due := w.due(kindRun, "r1", time.Minute)
	if len(due) != 1 || due[0].GetAgentId() != agent {
		w.Fatalf("due %v", due)
	}
	ctx := under(w.Context(), due[0].GetLease())
	b, err := w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	for _, p := range must(w.T, b, err).GetEvents() {
		begun, err := w.turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
		must(w.T, begun, err)
		step := func(seq int32, kind registryv1.StepKind, key, arguments, result string) *registryv1.Step {
			return &registryv1.Step{Seq: seq, Kind: kind, Key: key, State: registryv1.StepState_STEP_STATE_DONE, Name: "n", Arguments: arguments, Result: []byte(result), Usage: &registryv1.Usage{Input: 3, Output: 4}}
		}
		fin, err := w.turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
			AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: fate, Text: "done", Error: "because",
			Steps: []*registryv1.Step{
				step(1, registryv1.StepKind_STEP_KIND_MODEL, "model:1", "", `{"text":"","tool_calls":[]}`),
				step(2, registryv1.StepKind_STEP_KIND_TOOL, "tool:1:1", `{"command":"ls"}`, `{"stdout":"x"}`),
				step(3, registryv1.StepKind_STEP_KIND_MODEL, "model:2", "", `{"text":"done"}`),
			},
		})
		must(w.T, fin, err)
	}
	w.release(due[0].GetLease())
}

// deliver sends every reply of agent's thread by hand.
func (w *world) deliver(agent, thread string) {
	w.Helper()
	d := w.due(kindDeliver, "d1", time.Minute)
	ctx := under(w.Context(), d[0].GetLease())
	for {
		b, err := w.deliveries.BeginDelivery(ctx, &registryv1.BeginDeliveryRequest{AgentId: agent, ThreadId: thread, BootId: "b"})
		if must(w.T, b, err).GetOutcome() == registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_IDLE {
			break
		}
		fin, err := w.deliveries.FinishDelivery(ctx, &registryv1.FinishDeliveryRequest{
			AgentId: agent, ThreadId: thread, EventId: b.GetEvent().GetId(), Outcome: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SENT, Channel: "xgw", BootId: "b",
		})
		must(w.T, fin, err)
	}
	w.release(d[0].GetLease())
}

func (w *world) prune(agent string, apply bool) map[registryv1.PruneKind][2]int64 {
	w.Helper()
	out := map[registryv1.PruneKind][2]int64{}
	for token := ""; ; {
		r, err := w.agents.PruneAgent(w.Context(), &registryv1.PruneAgentRequest{AgentId: agent, OlderThan: durationOf(30 * 24 * time.Hour), Apply: apply, PageSize: 1, PageToken: token})
		for _, s := range must(w.T, r, err).GetSums() {
			sum := out[s.GetKind()]
			out[s.GetKind()] = [2]int64{sum[0] + s.GetRemoved(), sum[1] + s.GetKept()}
		}
		if token = r.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// sound checks the invariants of the whole home (I1 to I18).
func (w *world) sound() {
	w.Helper()
	found, _, err := invariant.Check(w.Context(), layout.At(w.home), invariant.Options{Live: true})
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range found {
		w.Error(f)
	}
}

// What is old and needed by nobody goes; a retry, a waiting caller, a delivery and
// the checks of RELIABILITY 6 find everything they look for.
func TestPrune(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	peer, inbox := filepath.Join(w.home, "agents/a1/threads/peers/main-bob"), filepath.Join(w.home, "agents/a1/inbox")
	thread := "threads/peers/main-bob"
	w.push("a1", "bob", "old, answered", "k1")
	batch := &registryv1.PushEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, IdempotencyKey: "k2"}
	for i := range 3 {
		batch.Events = append(batch.Events, pushRequest("a1", "bob", fmt.Sprint("one of many ", i), "").GetEvents()...)
	}
	must(t, must2(w.threads.PushEvents(t.Context(), batch)), nil)
	w.toil("a1", registryv1.Fate_FATE_REPLIED)
	w.deliver("a1", thread)
	w.push("a1", "bob", "old, dead", "k5")
	w.toil("a1", registryv1.Fate_FATE_DEAD)
	old := func() { // everything until now is forty days old
		at := time.Now().AddDate(0, 0, -40).UnixMilli()
		foreign(t, inbox, "UPDATE x_fate SET at = ?", at)
		foreign(t, peer, "UPDATE x_turn SET finished_at = ? WHERE state = 'done'", at)
	}
	old()
	w.push("a1", "bob", "old, answered, not delivered", "k6")
	w.toil("a1", registryv1.Fate_FATE_REPLIED)
	old()
	w.push("a1", "bob", "new", "k7")
	w.toil("a1", registryv1.Fate_FATE_REPLIED)
	for name, dir := range map[string]string{"events-20200101-000000.jsonl": peer, "events-20200102-000000.jsonl": peer, "agent-20200101-000000.log": filepath.Join(w.home, "agents/a1/logs"), "thread-20200101-000000.log": filepath.Join(inbox, "logs")} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}

	// Of four replied and delivered turns go one answer and one tool each; their
	// last answers stay, and all three steps of the dead and of the undelivered one.
	want := map[registryv1.PruneKind][2]int64{
		registryv1.PruneKind_PRUNE_KIND_RESULTS: {8, 4 + 3 + 3},
		registryv1.PruneKind_PRUNE_KIND_KEYS:    {3, 1}, // k1, k2 and k6; k5 is a dead letter
		registryv1.PruneKind_PRUNE_KIND_LINES:   {1, 1},
		registryv1.PruneKind_PRUNE_KIND_LOGS:    {2, 0},
	}
	compare := func(what string, got, want map[registryv1.PruneKind][2]int64) {
		t.Helper()
		for kind, n := range want {
			if got[kind] != n {
				t.Errorf("%s: %v: removed and kept %v, want %v", what, kind, got[kind], n)
			}
		}
	}
	compare("counted", w.prune("a1", false), want)
	compare("counted again", w.prune("a1", false), want)
	compare("applied", w.prune("a1", true), want)
	for kind, n := range want {
		want[kind] = [2]int64{0, n[1]}
	}
	compare("then", w.prune("a1", false), want)
	w.sound()

	turn, err := w.turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: 1})
	steps := must(t, turn, err).GetTurn().GetSteps()
	if len(steps) != 3 || len(steps[0].GetResult()) > 0 || len(steps[1].GetResult()) > 0 || steps[1].GetArguments() != "" || string(steps[2].GetResult()) != `{"text":"done"}` {
		t.Errorf("steps %v", steps)
	}
	used, err := w.turns.SumUsage(t.Context(), &registryv1.SumUsageRequest{AgentId: "a1"})
	if s := must(t, used, err).GetSums(); len(s) != 1 || s[0].GetAnswers() != 14 || s[0].GetUsage().GetInput() != 42 {
		t.Errorf("usage %v", s)
	}
	for key, known := range map[string]bool{"k1": false, "k5": true, "k6": false, "k7": true} {
		text := map[string]string{"k1": "old, answered", "k5": "old, dead", "k6": "old, answered, not delivered", "k7": "new"}[key]
		if r := w.push("a1", "bob", text, key); r.GetDuplicate() != known {
			t.Errorf("%s: duplicate is %v", key, r.GetDuplicate())
		}
	}
	if r, err := w.threads.PushEvents(t.Context(), batch); must(t, r, err).GetDuplicate() || len(r.GetEventIds()) != 3 {
		t.Errorf("the batch is %v", r)
	}
	retried, err := w.turns.RetryTurn(t.Context(), &registryv1.RetryTurnRequest{AgentId: "a1", InboxId: 5})
	must(t, retried, err)
	w.toil("a1", registryv1.Fate_FATE_REPLIED)
	w.sound()
	left, err := filepath.Glob(filepath.Join(peer, "events-*.jsonl"))
	if err != nil || !slices.Equal(left, []string{filepath.Join(peer, "events-20200102-000000.jsonl")}) {
		t.Errorf("left %q, %v", left, err)
	}
	if _, err := w.agents.PruneAgent(t.Context(), &registryv1.PruneAgentRequest{AgentId: "a1", OlderThan: durationOf(24 * time.Hour)}); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("a day: %v", err)
	}
}
