package registry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc/runs"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// RELIABILITY 5, sizes: the journal of a turn is larger than a message. Its account is read in several answers, and so is
// what a claim goes on with after a crash: without that each claim fails, is counted as a crash, and the message dies.
func TestLongJournal(t *testing.T) { backendtest.Each(t, testLongJournal) }

func testLongJournal(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	p, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, Events: []*registryv1.NewEvent{{Source: fmt.Sprintf(backendtest.Telegram, "ann", "ann"), Type: "message", Content: `{"text":"x"}`}},
	})
	backendtest.Must(t, p, err)
	due := w.Due(backendtest.KindRun, "r1", time.Minute)
	ctx := backendtest.Under(t.Context(), due[0].GetLease())
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	e := backendtest.Must(t, b, err).GetEvents()[0]
	begin := &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()}
	begun, err := w.Turns.BeginTurn(ctx, begin)
	backendtest.Must(t, begun, err)
	const steps, large = 6, 1 << 20
	var want []string
	for n := range steps {
		st := &registryv1.Step{
			Seq: int32(n + 1), Kind: registryv1.StepKind_STEP_KIND_TOOL, Key: fmt.Sprintf("tool:%d:1", n+1), State: registryv1.StepState_STEP_STATE_DONE,
			Class: registryv1.ToolClass_TOOL_CLASS_READ, Name: "read", Arguments: "{}", Result: []byte(`"` + strings.Repeat("x", large-2) + `"`),
		}
		if n == steps-1 {
			st.State, st.Result, st.Asks = registryv1.StepState_STEP_STATE_INTENT, nil, true
		}
		want = append(want, fmt.Sprint(st.GetKey(), " ", len(st.GetResult())))
		r, err := w.Turns.RecordStep(ctx, &registryv1.RecordStepRequest{AgentId: "a1", ThreadId: e.GetThreadId(), Key: e.GetKey(), Steps: []*registryv1.Step{st}})
		backendtest.Must(t, r, err)
	}
	read := func(name string, ctx context.Context, of *registryv1.Turn) {
		t.Helper()
		if !of.GetMoreSteps() {
			t.Errorf("%s has %d steps in one answer", name, len(of.GetSteps()))
		}
		if err := runs.ReadSteps(ctx, w.Turns, of); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, st := range of.GetSteps() {
			got = append(got, fmt.Sprint(st.GetKey(), " ", len(st.GetResult())))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	account, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", Key: e.GetKey()})
	read("the account", t.Context(), backendtest.Must(t, account, err).GetTurn())
	begun, err = w.Turns.BeginTurn(ctx, begin)
	claim := &registryv1.Turn{AgentId: "a1", Key: e.GetKey(), Steps: backendtest.Must(t, begun, err).GetSteps(), MoreSteps: begun.GetMoreSteps()}
	read("the claim", ctx, claim)
	if last := claim.GetSteps()[steps-1]; !last.GetNotBegun() {
		t.Errorf("a call that waits for a person has begun: %v", last)
	}
	if _, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", Key: e.GetKey(), AfterStep: "tool:9:9"}); fault.From(err).Code != codes.InvalidArgument {
		t.Errorf("behind no step: %v", err)
	}
}
