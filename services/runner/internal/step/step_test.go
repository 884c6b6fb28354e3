package step_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// A journaled answer comes back whole.
func TestRoundTrip(t *testing.T) {
	r := model.Response{
		Text: "a <b> \u2028 \"c\"", Reasoning: "hm", FinishReason: model.FinishToolCalls, Model: "m1", ProviderID: "x1",
		ToolCalls: []model.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: json.RawMessage(`{"command":"echo <x>"}`)}},
	}
	a, result, problem := step.NewAnswer(r, nil)
	if problem != nil {
		t.Fatal(problem)
	}
	got, err := step.Decode(result)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, got); diff != "" {
		t.Error(diff)
	}
	m := got.Message()
	if m.Text != r.Text || m.Reasoning != r.Reasoning || len(m.ToolCalls) != 1 || string(m.ToolCalls[0].Arguments) != string(r.ToolCalls[0].Arguments) {
		t.Errorf("%+v", m)
	}
	if step.ModelKey(3) != "model:3" || step.ToolKey(3, 2) != "tool:3:2" {
		t.Error("keys")
	}
	if _, err := step.Decode([]byte("{")); err == nil {
		t.Error("half an answer was read")
	}
}

func TestSizes(t *testing.T) {
	for name, r := range map[string]model.Response{
		"plain":     {Text: strings.Repeat("x", 2<<20)},
		"escaped":   {Text: strings.Repeat("\\", 2<<20)},
		"wide":      {Text: strings.Repeat("日", 1<<20)},
		"reasoning": {Text: strings.Repeat("x", 1<<19), Reasoning: strings.Repeat("y", 1<<20)},
	} {
		a, result, problem := step.NewAnswer(r, nil)
		if problem != nil || len(result) > 1<<20 || len(a.Text) > 900<<10 || !utf8.ValidString(a.Text) || !json.Valid(result) {
			t.Errorf("%s: %v, %d bytes, text of %d", name, problem, len(result), len(a.Text))
		}
	}
	// F9: calls that are too large go back to the model; the answer is journaled.
	big := json.RawMessage(`{"command":"` + strings.Repeat("x", toolset.MaxArguments) + `"}`)
	fits := json.RawMessage(`{"command":"` + strings.Repeat("x", toolset.MaxArguments-100) + `"}`)
	many := model.Response{Text: strings.Repeat("x", 2<<20), ToolCalls: []model.ToolCall{{Name: strings.Repeat("n", 10<<10), ID: strings.Repeat("i", 10<<10), Arguments: big}}}
	for range 127 {
		many.ToolCalls = append(many.ToolCalls, model.ToolCall{Name: "bash_exec", Arguments: fits})
	}
	many.ToolCalls = model.SealToolCalls(model.Request{}, many.ToolCalls)
	a, result, problem := step.NewAnswer(many, nil)
	if problem != nil || len(result) > 1<<20 || len(a.ToolCalls) != 128 || !strings.HasSuffix(a.Text, "larger than a message can be]") {
		t.Errorf("many calls: %v, %d bytes", problem, len(result))
	}
	if a, err := step.Decode(result); err != nil || a.ToolCalls[0].Problem == "" { // also after a crash
		t.Errorf("decoded %.300v, %v", a.ToolCalls[0], err)
	}
	m := a.Message()
	if m.ToolCalls[0].Problem == "" || m.ToolCalls[1].Problem != "" || m.ToolCalls[127].Problem == "" {
		t.Errorf("problems %q, %q, %q", m.ToolCalls[0].Problem, m.ToolCalls[1].Problem, m.ToolCalls[127].Problem)
	}
	if _, _, problem := step.NewAnswer(model.Response{ToolCalls: []model.ToolCall{{ID: "1", Name: "bash_exec", Arguments: big}}}, nil); problem == nil || problem.Recoverable() {
		t.Errorf("a call that is not sealed: %v", problem)
	}
}

// The request's hash does not hang on the try.
func TestRequestHash(t *testing.T) {
	req := model.Request{Model: "m", System: "s"}
	a := step.Model(1, 1, "p", req, model.Response{}, nil)
	req.Try = 3
	b := step.Model(1, 1, "p", req, model.Response{}, nil)
	req.System = "other"
	c := step.Model(1, 1, "p", req, model.Response{}, nil)
	if !bytes.Equal(a.GetRequestSha256(), b.GetRequestSha256()) || bytes.Equal(a.GetRequestSha256(), c.GetRequestSha256()) {
		t.Error("hashes")
	}
}
