package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

const console = "threads/peers/cli-cli"

// The whole way: message, tool with its environment, reply (S0-75, S0-76, S0-78,
// S0-79, S0-104, S1-01).
func TestMessageToolReply(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	r := w.runner(nil)
	end := w.wait(r, "a1", w.say(r, "a1", "run: echo $TOOL_IDEMPOTENCY_KEY $XAR_AGENT_ID $XAR_CONV_ID $THECLAW_FENCE"))
	if end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || !strings.Contains(end.GetText(), ":tool:1:1 a1 "+console+" agent/a1=1") {
		t.Fatalf("ended %v", end)
	}
	var kinds []string
	for _, e := range w.events("a1", console) {
		kinds = append(kinds, e.GetType()+"/"+e.GetSubtype()+"/"+strings.SplitN(e.GetSource(), ":", 2)[0])
	}
	if got := strings.Join(kinds, " "); got != "message//external record/toolcall/self message//self" {
		t.Errorf("thread holds %s", got)
	}
}

// S0-87, S0-77: a failure of one message is that message's alone.
func TestDeadThenNext(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	script := modeltest.New(t, modeltest.Fail(401, "Incorrect API key"), modeltest.Say("fine"))
	r := w.runner(script)
	first := w.say(r, "a1", "one")
	if end := w.wait(r, "a1", first); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_ERROR || !strings.Contains(end.GetError(), "key refused") {
		t.Fatalf("ended %v", end)
	}
	if end := w.wait(r, "a1", w.say(r, "a1", "two")); end.GetText() != "fine" {
		t.Fatalf("ended %v", end)
	}
	errorsSeen := 0
	for _, e := range w.events("a1", console) {
		if e.GetSubtype() == "error" {
			errorsSeen++
		}
	}
	if errorsSeen != 1 {
		t.Errorf("%d error records", errorsSeen)
	}
	// S0-76: BuildContext shows what was sent.
	sent := script.Requests()[1].Chat
	built, err := r.BuildContext(t.Context(), &runnerpb.BuildContextRequest{AgentId: "a1", ThreadId: console})
	if err != nil {
		t.Fatal(err)
	}
	var system []string
	for _, p := range built.GetParts() {
		if p.GetRole() == "system" {
			system = append(system, p.GetText())
		}
	}
	if got := sent.Messages[0].Content; got != strings.Join(system, "\n\n") {
		t.Errorf("sent %q, shown %q", got, system)
	}
	if len(sent.Tools) != 1 || sent.Tools[0].Function.Name != "bash_exec" { // S0-103
		t.Errorf("tools %v", sent.Tools)
	}
}

// Drain: a turn that does not end in the grace is left, and the next runner goes
// on from the journal; the lease is free at once.
func TestDrainAndResume(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	script := modeltest.New(t,
		modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"echo once >> log; cat log"}`}}}},
		modeltest.Step{Text: []string{"never ", "finished"}, Gate: gate},
		modeltest.Say("finished"))
	r := w.runner(script, func(c *runner.Config) { c.Grace = time.Millisecond })
	run := w.say(r, "a1", "hi")
	s, err := r.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: run})
	if err != nil {
		t.Fatal(err)
	}
	for {
		i, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if i.GetText() == "never " {
			break
		}
	}
	r.stop()
	leases, err := w.leases.ListLeases(t.Context(), &registrypb.ListLeasesRequest{})
	if err != nil || len(leases.GetLeases()) != 0 {
		t.Errorf("leases after the drain: %v %v", leases, err)
	}
	r = w.runner(script)
	if end := w.wait(r, "a1", run); end.GetText() != "finished" {
		t.Fatalf("ended %v", end)
	}
	if n := len(script.Requests()); n != 3 {
		t.Errorf("%d model calls: a journalled answer was asked for again", n)
	}
	last := script.Requests()[2].Chat.Messages
	if result := last[len(last)-1].Content; strings.Count(result, "once") != 1 {
		t.Errorf("the tool ran again: %s", result)
	}
	turn, err := w.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", InboxId: 1})
	if err != nil || turn.GetTurn().GetCrashAttempts() > 1 {
		t.Errorf("a clean end counts as a crash: %v %v", turn, err)
	}
}

// A2, supervision: a message that panics until it is dead does not set its agent aside: it
// is out of the way.
func TestQuarantineEndsWithItsCause(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	r := w.runner(nil)
	if end := w.wait(r, "a1", w.say(r, "a1", "fail: panic")); !strings.Contains(end.GetError(), "panic") {
		t.Fatalf("ended %v", end)
	}
	if end := w.wait(r, "a1", w.say(r, "a1", "say: fine")); end.GetText() != "fine" {
		t.Errorf("the next message: %v", end)
	}
	turn, err := w.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", InboxId: 1})
	if err != nil || len(turn.GetTurn().GetAttempts()) != 3 {
		t.Errorf("%v %v", turn, err)
	}
	for _, a := range turn.GetTurn().GetAttempts() {
		if a.GetClass() != "panic" || !a.GetCounted() || a.GetAt() == nil {
			t.Errorf("attempt %v", a)
		}
	}
}

// reports is a connection to the registry on which the test sees what a runner reports of
// agents that it leaves alone.
type reports struct {
	grpc.ClientConnInterface
	aside chan string
}

func (r reports) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := r.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if in, ok := args.(*registrypb.OpenBatchRequest); ok && in.GetSetAside() != nil && err == nil {
		r.aside <- in.GetAgentId()
	}
	return err
}

// Supervision: an agent whose work panics is set aside, and only it; its status says so and
// for how long (A2).
func TestQuarantine(t *testing.T) {
	w := newWorld(t)
	seen := reports{w.conn, make(chan string, 16)}
	w.wire = seen
	w.agent("bad", "retry: {max_attempts: 9}")
	w.agent("good", "")
	r := w.runner(nil)
	w.say(r, "bad", "fail: panic")
	if id := <-seen.aside; id != "bad" {
		t.Fatalf("set aside: %s", id)
	}
	status := func(id string) *registrypb.Agent {
		t.Helper()
		s, err := w.agents.GetAgentStatus(t.Context(), &registrypb.GetAgentStatusRequest{AgentId: id})
		if err != nil {
			t.Fatal(err)
		}
		return s.GetAgent()
	}
	if a := status("bad"); a.GetHealth() != registrypb.AgentHealth_AGENT_HEALTH_DEGRADED || !strings.Contains(a.GetProblem(), "set aside after repeated panics, for another ") {
		t.Errorf("status %v", a)
	}
	if a := status("good"); a.GetHealth() != registrypb.AgentHealth_AGENT_HEALTH_OK {
		t.Errorf("status %v", a)
	}
	if _, err := r.RunBatch(t.Context(), &runnerpb.RunBatchRequest{AgentId: "bad"}); !fault.Is(err, fault.AgentFailed) {
		t.Errorf("%v", err)
	}
	if end := w.wait(r, "good", w.say(r, "good", "say: fine")); end.GetText() != "fine" {
		t.Errorf("%v", end)
	}
	waiting := w.say(r, "bad", "say: later")
	end, err := r.WaitRun(t.Context(), &runnerpb.WaitRunRequest{AgentId: "bad", RunId: waiting, Timeout: durationpb.New(50 * time.Millisecond)})
	if err != nil || end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_TIMEOUT {
		t.Errorf("worked on in quarantine: %v %v", end, err)
	}
	r.stop() // and a drain does not wait for it
}

// S0-73, S0-83: a batch asked for by hand, joined or held elsewhere.
func TestRunBatch(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	r := w.runner(nil)
	if b, err := r.RunBatch(t.Context(), &runnerpb.RunBatchRequest{AgentId: "a1"}); err != nil || b.GetProcessed() != 0 {
		t.Fatalf("empty inbox: %v %v", b, err)
	}
	for range 5 {
		w.say(r, "a1", "say: x")
	}
	b, err := r.RunBatch(t.Context(), &runnerpb.RunBatchRequest{AgentId: "a1"})
	if err != nil || b.GetHeadId() != 5 {
		t.Fatalf("%v %v", b, err)
	}
	if n := len(w.events("a1", console)); n != 10 {
		t.Errorf("%d events after the batch", n)
	}
	other := w.runner(nil)
	if _, err := other.RunBatch(t.Context(), &runnerpb.RunBatchRequest{AgentId: "a1"}); !fault.Is(err, fault.LeaseHeld) {
		t.Errorf("held elsewhere: %v", err)
	}
	info, err := r.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{})
	if err != nil || info.GetProvider() != "offline" || info.GetHolder() == "" || info.GetTurnsActive() != 0 {
		t.Errorf("%v %v", info, err)
	}
}

// S1-18: 60 messages of 6 peers, each answered once and in its order.
func TestManyPeers(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	r := w.runner(nil)
	var last string
	for n := range 60 {
		s, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{
			AgentId: "a1", Source: fmt.Sprintf("external:console:cli:dm:s:peer%d", n%6), Text: fmt.Sprint("say: ", n),
		})
		if err != nil {
			t.Fatal(err)
		}
		last = s.GetRunId()
	}
	w.wait(r, "a1", last)
	if _, err := r.RunBatch(t.Context(), &runnerpb.RunBatchRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	for peer := range 6 {
		var replies []string
		for _, e := range w.events("a1", fmt.Sprintf("threads/peers/cli-peer%d", peer)) {
			var c struct{ Text string }
			if err := json.Unmarshal([]byte(e.GetContent()), &c); err != nil {
				t.Fatal(err)
			}
			if e.GetSource() == "self" {
				replies = append(replies, c.Text)
			}
		}
		var want []string
		for n := peer; n < 60; n += 6 {
			want = append(want, fmt.Sprint(n))
		}
		if !slices.Equal(replies, want) {
			t.Errorf("peer %d was answered %v", peer, replies)
		}
	}
}

// A batch of a stopped agent is refused; its messages wait for the start.
func TestStopped(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	if _, err := w.agents.StopAgent(t.Context(), &registrypb.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	r := w.runner(nil)
	run := w.say(r, "a1", "say: hi")
	if _, err := r.RunBatch(t.Context(), &runnerpb.RunBatchRequest{AgentId: "a1"}); !fault.Is(err, fault.AgentStopped) {
		t.Errorf("%v", err)
	}
	if _, err := w.agents.StartAgent(t.Context(), &registrypb.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	if end := w.wait(r, "a1", run); end.GetText() != "hi" {
		t.Errorf("%v", end)
	}
}
