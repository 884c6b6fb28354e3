package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/loop"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/message"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// work is a piece of work that no inbox event has caused: rounds of a script over a
// journal in memory.
type work struct {
	*toolsettest.Journal
	loop   loop.Loop
	script func(round int) model.Response
	fails  int // tries
	asked  []int
	last   []model.Message
	count  *counter
}

func newWork(t *testing.T, script func(round int) model.Response) *work {
	w := &work{script: script, count: &counter{}}
	calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{MessageTool: true}, w.count, message.Tool{})
	w.Journal = j
	w.loop = loop.Loop{Steps: j, Model: w, Calls: calls}
	return w
}

// Ask implements [loop.Model].
func (w *work) Ask(_ context.Context, round int, said []model.Message) (step.Answer, *registrypb.Step, *modelcall.Try, error) {
	if w.fails > 0 {
		w.fails--
		return step.Answer{}, nil, &modelcall.Try{Err: model.Errorf(model.Unavailable, "busy"), Again: true}, nil
	}
	w.asked, w.last = append(w.asked, round), said
	resp := w.script(round)
	a, result, problem := step.NewAnswer(resp, nil)
	if problem != nil {
		return step.Answer{}, nil, nil, problem
	}
	return a, step.Model(w.NextSeq(), round, "fake", model.Request{}, resp, result), nil, nil
}

// Journaled implements [loop.Model].
func (*work) Journaled() {}

// counter is a tool of class effect that counts.
type counter struct{ runs int }

func (*counter) Spec() toolset.Spec {
	return toolset.Spec{Name: "count", Description: "Counts.", Schema: json.RawMessage(`{"type":"object"}`)}
}
func (*counter) Class(toolset.Call) toolset.Class { return toolset.Effect }
func (c *counter) Run(context.Context, toolset.Call) toolset.Result {
	c.runs++
	return toolset.Result{Text: fmt.Sprint(c.runs)}
}

// script calls each named tool in a round of its own, two times, and then ends.
func script(names ...string) func(int) model.Response {
	return func(round int) model.Response {
		if round > len(names) {
			return model.Response{Text: "done", FinishReason: model.FinishStop}
		}
		r := model.Response{FinishReason: model.FinishToolCalls}
		for n := range 2 {
			r.ToolCalls = append(r.ToolCalls, model.ToolCall{ID: fmt.Sprintf("c%d-%d", round, n), Name: names[round-1], Arguments: json.RawMessage(`{"text":"x"}`)})
		}
		return r
	}
}

func TestRounds(t *testing.T) {
	w := newWork(t, script("count", "message_send"))
	w.fails = 1
	if _, _, failed, err := w.loop.Run(t.Context(), nil); failed == nil || err != nil {
		t.Fatalf("a failed try gave %v %v", failed, err)
	}
	w.loop.Merge = func(_ context.Context, round int, open bool) ([]model.Message, error) {
		if !open {
			t.Errorf("round %d is not open", round)
		}
		return []model.Message{{Role: model.RoleUser, Text: fmt.Sprint("before ", round)}}, nil
	}
	a, row, failed, err := w.loop.Run(t.Context(), []model.Message{{Role: model.RoleUser, Text: "go"}})
	if err != nil || failed != nil || a.Text != "done" || row.GetKey() != "model:3" || w.Answer("model:3") != nil {
		t.Fatalf("%+v %v %v %v", a, row, failed, err)
	}
	var said []string
	for _, m := range w.last {
		said = append(said, string(m.Role)+" "+m.Text)
	}
	want := `user go, user before 1, assistant , tool {"text":"1"}, tool {"text":"2"}, user before 2, assistant , tool {"sent":true}, tool {"sent":true}, user before 3`
	if got := strings.Join(said, ", "); got != want {
		t.Errorf("the last round was asked with\n%s\nwant\n%s", got, want)
	}
	if w.count.runs != 2 || strings.Join(w.Said, " ") != "x x" || len(w.asked) != 3 {
		t.Errorf("%d runs, said %q, asked %v", w.count.runs, w.Said, w.asked)
	}
	// All of it is in the journal: the same work again makes no call.
	if err := w.Write(t.Context(), nil, row); err != nil {
		t.Fatal(err)
	}
	w.loop.Merge = nil
	if a, _, _, err := w.loop.Run(t.Context(), nil); err != nil || a.Text != "done" || w.count.runs != 2 || len(w.asked) != 3 {
		t.Errorf("again: %+v %v, %d runs, asked %v", a, err, w.count.runs, w.asked)
	}
}

// The first call without a result may have begun; those behind it have not.
func TestOpenCalls(t *testing.T) {
	w := newWork(t, script("count"))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the process ends")
	w.loop.Calls.Set = ending(t, func() { cancel(cause) })
	if _, _, _, err := w.loop.Run(ctx, nil); !errors.Is(err, cause) {
		t.Fatal(err)
	}
	calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, w.count)
	w.loop.Calls.Set = calls.Set
	if _, _, _, err := w.loop.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if a, b := w.Tool("tool:1:1").GetState(), w.Tool("tool:1:2").GetState(); a != registrypb.StepState_STEP_STATE_IN_DOUBT || b != registrypb.StepState_STEP_STATE_DONE || w.count.runs != 1 {
		t.Errorf("%v, %v, %d runs", a, b, w.count.runs)
	}
}

// ending is a set whose tool is interrupted.
func ending(t *testing.T, end func()) toolset.Set {
	calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, &ends{end: end})
	return calls.Set
}

type ends struct {
	counter
	end func()
}

func (e *ends) Run(context.Context, toolset.Call) toolset.Result {
	e.end()
	return toolset.Failed("interrupted")
}

// S0-106: a model that only calls tools is stopped.
func TestErrRounds(t *testing.T) {
	w := newWork(t, func(int) model.Response {
		return model.Response{ToolCalls: []model.ToolCall{{ID: "c", Name: "count", Arguments: json.RawMessage(`{}`)}}}
	})
	if _, _, _, err := w.loop.Run(t.Context(), nil); !errors.Is(err, loop.ErrRounds) || w.count.runs != loop.MaxRounds {
		t.Errorf("%v after %d runs", err, w.count.runs)
	}
}

// F9: a model that only makes calls that cannot be made is stopped earlier; one good call
// among them is made, and counts as progress.
func TestErrRefused(t *testing.T) {
	bad := model.ToolCall{ID: "a", Name: "count", Arguments: json.RawMessage(`{"_raw":"["}`), Problem: "no object"}
	good := model.ToolCall{ID: "b", Name: "count", Arguments: json.RawMessage(`{}`)}
	w := newWork(t, func(round int) model.Response {
		r := model.Response{ToolCalls: []model.ToolCall{bad}, Notes: []string{"a call was refused"}}
		if round == 3 {
			r.ToolCalls = append(r.ToolCalls, good)
		}
		return r
	})
	_, _, _, err := w.loop.Run(t.Context(), nil)
	if !errors.Is(err, loop.ErrRounds) || !strings.Contains(err.Error(), "no object") || len(w.asked) != 3+loop.MaxRefused || w.count.runs != 1 {
		t.Errorf("%v after %d answers and %d runs", err, len(w.asked), w.count.runs)
	}
	if got := string(w.Tool("tool:1:1").GetResult()); got != `{"error":"invalid arguments for count: no object. The schema of the arguments is {\"type\":\"object\"}"}` || w.Tool("tool:1:1").GetClass() != registrypb.ToolClass_TOOL_CLASS_READ {
		t.Errorf("the first call: %s", got)
	}
}
