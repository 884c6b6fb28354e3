package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// S1-48: signed thinking is journaled with its answer and goes back with the
// tool's result, also by the runner that takes over; people see the thinking and
// never the signature.
func TestSignedThinkingOutlivesTheRunner(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "reasoning_default: stream")
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	script := modeltest.New(t,
		modeltest.Step{Reasoning: []string{"look ", "first"}, ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"true"}`}}}},
		modeltest.Step{Text: []string{"never ", "finished"}, Gate: gate},
		modeltest.Say("done"))
	file := filepath.Join(t.TempDir(), "providers.yaml")
	text := "providers:\n  work: {api: anthropic, base_url: " + script.URL() + ", models: [m1], thinking: adaptive}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.runner(nil, func(c *runner.Config) { c.ProvidersFile, c.Grace = file, 1 })
	id := w.say(r, "a1", "hi")
	s, err := r.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: id})
	if err != nil {
		t.Fatal(err)
	}
	thought := ""
	for said := ""; said != "never "; {
		item, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		said = item.GetText()
		if item.GetStream() == runnerpb.RunStream_RUN_STREAM_REASONING {
			thought += said
		}
		if strings.Contains(said, modeltest.Signature) {
			t.Errorf("the signature is shown: %v", item)
		}
	}
	if thought != "look first" {
		t.Errorf("thinking streamed %q", thought)
	}
	r.stop()
	r = w.runner(nil, func(c *runner.Config) { c.ProvidersFile = file })
	if end := w.wait(r, "a1", id); end.GetText() != "done" {
		t.Fatalf("ended %v", end)
	}
	requests := script.Requests()
	if len(requests) != 3 {
		t.Fatalf("%d model calls", len(requests))
	}
	for i, q := range requests[1:] {
		if body := string(q.Body); strings.Count(body, modeltest.Signature) != 1 || !strings.Contains(body, `"thinking":"look first"`) {
			t.Errorf("call %d: %s", i+2, body)
		}
	}
}

// S1-05, S1-07: the owner says how one run thinks; the next one does as the provider
// is set, and what somebody else writes into a message asks for nothing.
func TestThinkingOfOneRun(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "outbound: []")
	script := modeltest.New(t, modeltest.Say("1"), modeltest.Say("2"), modeltest.Say("3"), modeltest.Say("4"), modeltest.Say("5"))
	file := filepath.Join(t.TempDir(), "providers.yaml")
	text := "providers:\n  work: {api: anthropic, base_url: " + script.URL() + ", models: [m1]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.runner(nil, func(c *runner.Config) { c.ProvidersFile = file })
	for n, c := range []struct{ source, thinking, want string }{
		{"", "adaptive", `"type":"adaptive"`},
		{"", "2048", `"budget_tokens":2048`},
		{"", "high", `"budget_tokens":20480`},
		{"", "", ""},
		{"external:telegram:main:dm:bob:bob", "adaptive", ""},
	} {
		run, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Source: c.source, Text: "hi", Thinking: c.thinking})
		if err != nil {
			t.Fatal(err)
		}
		w.wait(r, "a1", run.GetRunId())
		if body := string(script.Requests()[n].Body); strings.Contains(body, `"thinking":{`) != (c.want != "") || !strings.Contains(body, c.want) {
			t.Errorf("call %d: %s", n, body)
		}
	}
	if _, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: "hi", Thinking: "much"}); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("much: %v", err)
	}
}
