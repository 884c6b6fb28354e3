package runner_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// S1-02, S1-03, S1-04, S1-06: the outcomes of a wait, and the same key again.
func TestWait(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	gate := make(chan struct{})
	r := w.runner(modeltest.New(t, modeltest.Step{Text: []string{"late"}, Gate: gate}))
	start := func() *runnerpb.StartRunResponse {
		s, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: "hi", IdempotencyKey: "k1"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	run := start()
	if again := start(); again.GetRunId() != run.GetRunId() || run.GetAcceptedAt() == nil {
		t.Errorf("the same key gave %v and %v", run, again)
	}
	end, err := r.WaitRun(t.Context(), &runnerpb.WaitRunRequest{AgentId: "a1", RunId: run.GetRunId(), Timeout: durationpb.New(time.Millisecond)})
	if err != nil || end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_TIMEOUT {
		t.Errorf("%v %v", end, err)
	}
	close(gate)
	if end := w.wait(r, "a1", run.GetRunId()); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || end.GetText() != "late" || end.GetEndedAt() == nil {
		t.Errorf("%v", end)
	}
	_, err = r.WaitRun(t.Context(), &runnerpb.WaitRunRequest{AgentId: "a1", RunId: strings.Replace(run.GetRunId(), ":1:", ":9:", 1)})
	if !fault.Is(err, fault.RunNotFound) {
		t.Errorf("unknown run: %v", err)
	}
	if _, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "nobody", Text: "hi"}); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("unknown agent: %v", err)
	}
}

// stream reads a run to its end.
func stream(t *testing.T, r *workshop, run string, after uint64) (items []*runnerpb.StreamRunResponse) {
	t.Helper()
	s, err := r.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: run, AfterSeq: after})
	if err != nil {
		t.Fatal(err)
	}
	for {
		i, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return items
		}
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, i)
	}
}

func shape(items []*runnerpb.StreamRunResponse) string {
	var b strings.Builder
	seq := uint64(0)
	for _, i := range items {
		if i.GetSeq() <= seq {
			b.WriteString("SEQ ")
		}
		seq = i.GetSeq()
		b.WriteString(strings.ToLower(strings.TrimPrefix(i.GetStream().String(), "RUN_STREAM_")) + "/" + i.GetPhase() + " ")
	}
	return strings.TrimSpace(b.String())
}

// S1-14, S1-15: while it happens, right after, after a restart; one end each.
func TestStream(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	gate := make(chan struct{})
	script := modeltest.New(t,
		modeltest.Step{Text: []string{"I look"}, ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"echo x"}`}}}, Gate: gate},
		modeltest.Say("do", "ne"))
	r := w.runner(script)
	run := w.say(r, "a1", "hi")
	live := make(chan []*runnerpb.StreamRunResponse)
	go func() { live <- stream(t, r, run, 0) }()
	close(gate)
	const want = "lifecycle/start assistant/delta tool/start tool/update tool/result assistant/delta assistant/delta lifecycle/end"
	items := <-live
	if got := shape(items); got != want {
		t.Fatalf("live: %s", got)
	}
	if got := shape(stream(t, r, run, 0)); got != want {
		t.Errorf("right after: %s", got)
	}
	if got := shape(stream(t, r, run, items[4].GetSeq())); got != "assistant/delta assistant/delta lifecycle/end" {
		t.Errorf("resumed: %s", got)
	}
	r.stop()
	r = w.runner(script)
	if got := shape(stream(t, r, run, 0)); got != "lifecycle/start assistant/delta tool/start tool/result assistant/delta lifecycle/end" {
		t.Errorf("from the journal: %s", got)
	}
	rest := stream(t, r, run, items[5].GetSeq())
	if got := shape(rest); got != "assistant/delta lifecycle/end" || rest[0].GetText() != "ne" || rest[0].GetSeq() != items[6].GetSeq() {
		t.Errorf("after a restart of the runner: %s", got)
	}
}

// lateEnds is a connection to the registry that holds back the answers to the ends of
// turns: the registry knows the fate, the runner does not yet.
type lateEnds struct {
	grpc.ClientConnInterface
	gate chan struct{}
}

func (l lateEnds) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := l.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if _, ok := reply.(*registrypb.FinishTurnResponse); ok {
		<-l.gate
	}
	return err
}

// S1-16: an abort ends the program and the run; what was said is kept.
func TestAbortRun(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	w.wire = lateEnds{w.conn, gate}
	r := w.runner(nil)
	t.Cleanup(open)
	run := w.say(r, "a1", "run: sleep 600")
	s, err := r.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: run})
	if err != nil {
		t.Fatal(err)
	}
	for {
		i, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if i.GetStream() == runnerpb.RunStream_RUN_STREAM_TOOL {
			break
		}
	}
	start := time.Now()
	if _, err := r.AbortRun(t.Context(), &runnerpb.AbortRunRequest{AgentId: "a1", RunId: run}); err != nil {
		t.Fatal(err)
	}
	t.Logf("aborted after %v", time.Since(start))
	end, err := r.WaitRun(t.Context(), &runnerpb.WaitRunRequest{AgentId: "a1", RunId: run, Timeout: durationpb.New(time.Millisecond)})
	if err != nil || end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_ERROR || !strings.Contains(end.GetError(), "aborted") {
		t.Errorf("%v %v", end, err)
	}
	if _, err := r.AbortRun(t.Context(), &runnerpb.AbortRunRequest{AgentId: "a1", RunId: run}); !fault.Is(err, fault.RunNotFound) {
		t.Errorf("again, before it is not at work any more: %v", err)
	}
	open()
	if end := w.wait(r, "a1", w.say(r, "a1", "say: still here")); end.GetText() != "still here" {
		t.Errorf("the next one: %v", end)
	}
}
