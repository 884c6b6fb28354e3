package drivertest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// cutEverywhere breaks one rich answer after each of its events, once with the
// connection and once with a clean end: it is an answer only when it is complete.
func (s suite) cutEverywhere(t *testing.T) {
	whole := modeltest.Step{
		Reasoning: []string{"a", "b"}, Text: []string{"c", "d"},
		ToolCalls: []modeltest.ToolCall{
			{ID: "c1", Name: "a", Arguments: []string{`{"x":`, `1}`}}, {ID: "c2", Name: "b", Arguments: []string{`{"y":`, `2}`}},
		},
		Usage: &modeltest.Usage{Input: 7, Output: 3},
	}
	const most = 64
	for name, cut := range map[string]func(*modeltest.Step, int){
		"connection lost": func(s *modeltest.Step, n int) { s.CutAfter = n },
		"body ends":       func(s *modeltest.Step, n int) { s.EndAfter = n },
	} {
		t.Run(name, func(t *testing.T) {
			cuts, answers := 0, 0
			for n := 1; n <= most && answers < 4; n++ {
				step := whole
				cut(&step, n)
				got, failure, _ := s.call(t, step, request("hi"))
				if failure == nil {
					answers++
					if got.Text != "cd" || len(got.ToolCalls) != 2 || string(got.ToolCalls[1].Arguments) != `{"y":2}` {
						t.Errorf("after %d events half an answer counts: %+v", n, got)
					}
					continue
				}
				cuts++
				if failure.Class != model.CutStream || answers > 0 {
					t.Errorf("after %d events: %v", n, failure)
				}
			}
			if cuts < 8 || answers == 0 { // 8 pieces, and their end
				t.Errorf("%d cuts, %d whole answers", cuts, answers)
			}
		})
	}
}

// streaming checks that deltas are not held back until the end, and that the
// caller's context ends a call in the middle.
func (s suite) streaming(t *testing.T) {
	t.Run("first delta before the end", func(t *testing.T) {
		gate := make(chan struct{})
		server := modeltest.New(t, modeltest.Step{Text: []string{"first ", "second"}, Gate: gate})
		// The provider goes on only because the first delta has arrived.
		response, err := s.newDriver(server.URL(), 0).Generate(t.Context(), request("hi"), func(d model.Delta) {
			if d.Text == "first " {
				close(gate)
			}
		})
		if err != nil || response.Text != "first second" {
			t.Errorf("%q, %v", response.Text, err)
		}
	})
	t.Run("cancel", s.cancel)
	t.Run("deadline", func(t *testing.T) {
		server := modeltest.New(t, modeltest.Step{Text: []string{"first ", "second"}, Gate: make(chan struct{})})
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		_, err := s.newDriver(server.URL(), 0).Generate(ctx, request("hi"), nil)
		if e := model.AsError(err); e == nil || e.Class != model.Timeout || e.Recoverable() {
			t.Errorf("call past its deadline: %v", err)
		}
	})
	// A line that is kept busy is not an answer that arrives.
	t.Run("slow drip", func(t *testing.T) {
		for name, step := range map[string]modeltest.Step{"in the answer": {Text: []string{"a"}, Drip: true}, "before it": {Drip: true}} {
			_, err := s.newDriver(modeltest.New(t, step).URL(), 200*time.Millisecond).Generate(t.Context(), request("hi"), nil)
			e := model.AsError(err)
			if e == nil || !e.Recoverable() || (e.Class != model.CutStream && (step.Text != nil || e.Class != model.Unavailable)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// cancel ends the call and the provider's work within a second; a machine under
// load has five tries to show it.
func (s suite) cancel(t *testing.T) {
	var took []time.Duration
	for range 5 {
		left := make(chan struct{})
		server := modeltest.New(t, modeltest.Step{Text: []string{"first ", "second"}, Gate: make(chan struct{}), Left: left})
		ctx, cancel := context.WithCancel(t.Context())
		var start time.Time
		_, err := s.newDriver(server.URL(), 0).Generate(ctx, request("hi"), func(model.Delta) { start = time.Now(); cancel() })
		cancel()
		if e := model.AsError(err); e == nil || e.Class != model.Canceled || e.Recoverable() {
			t.Fatalf("canceled call: %v", err)
		}
		select {
		case <-left:
		case <-time.After(time.Minute):
			t.Fatal("the connection is still open a minute after the call was canceled")
		}
		took = append(took, time.Since(start))
	}
	t.Logf("connection closed after %v", took)
	if slices.Min(took) > time.Second {
		t.Errorf("connections closed after %v", took)
	}
}

// requests checks what is sent: system first, tools, a complete tool round.
func (s suite) requests(t *testing.T) {
	server := modeltest.New(t, modeltest.Say("fine"))
	temperature := 0.5
	_, err := s.newDriver(server.URL(), 0).Generate(t.Context(), model.Request{
		Model: "m1", System: "Be brief.", MaxOutputTokens: 99, Temperature: &temperature,
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "time?"},
			{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: json.RawMessage(`{"command":"date"}`)}}},
			{Role: model.RoleTool, ToolCallID: "c1", Name: "bash_exec", Text: "noon"},
			{Role: model.RoleAssistant, Text: "noon"},
			{Role: model.RoleUser, Text: "thanks"},
		},
		Tools: []model.Tool{{Name: "bash_exec", Description: "runs it", Schema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}}}`)}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := server.Requests()[0]
	if r.Header.Get("Authorization") != "Bearer "+modeltest.Key && r.Header.Get("X-Api-Key") != modeltest.Key {
		t.Errorf("the key is not in the headers: %v", r.Header)
	}
	c := r.Chat
	var said []string
	for _, m := range c.Messages {
		if m.Role != "system" && m.Content != "" {
			said = append(said, m.Role+" "+m.Content)
		}
	}
	if got := strings.Join(said, ", "); got != "user time?, tool noon, assistant noon, user thanks" {
		t.Errorf("said %q", got)
	}
	if !c.Stream || c.Model != "m1" || len(c.Tools) != 1 || c.Tools[0].Function.Name != "bash_exec" || c.LastUser() != "thanks" {
		t.Errorf("request: %s", r.Body)
	}
	for _, part := range []string{`"Be brief."`, `"temperature":0.5`, `"c1"`, `"properties":{"command":{"type":"string"}}`} {
		if !strings.Contains(string(r.Body), part) {
			t.Errorf("no %s in %s", part, r.Body)
		}
	}
}
