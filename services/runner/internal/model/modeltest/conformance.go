package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// Key is the API key a driver under test must use; the suite watches that it
// reaches the provider and no error. It looks like no known key, so that only
// a driver that knows its own key can keep it out.
const Key = "conformance.0123456789"

// Run is the suite every network driver must pass. newDriver makes a driver
// for a base URL, with [Key] and without retries of its own.
func Run(t *testing.T, newDriver func(baseURL string) model.Driver) {
	s := suite{newDriver: newDriver}
	t.Run("answers", s.answers)
	t.Run("tool calls", s.toolCalls)
	t.Run("refusals", s.refusals)
	t.Run("broken streams", s.brokenStreams)
	t.Run("requests", s.requests)
	t.Run("streaming", s.streaming)
	t.Run("network", s.network)
}

type suite struct {
	newDriver func(baseURL string) model.Driver
}

// request is the plain question of the suite.
func request(text string) model.Request {
	return model.Request{Model: "m1", Messages: []model.Message{{Role: model.RoleUser, Text: text}}}
}

// call plays one step to a new driver and collects the streamed deltas.
func (s suite) call(t *testing.T, step Step, req model.Request) (model.Response, *model.Error, string) {
	t.Helper()
	server := New(t, step)
	var streamed strings.Builder
	response, err := s.newDriver(server.URL()).Generate(t.Context(), req, func(d model.Delta) {
		streamed.WriteString(d.Text)
	})
	failure := model.AsError(err)
	if n := len(server.Requests()); n != 1 {
		t.Errorf("%d requests for one call: a driver must not repeat", n)
	}
	checkFailure(t, err, failure)
	return response, failure, streamed.String()
}

// checkFailure holds for each error of each driver.
func checkFailure(t *testing.T, err error, failure *model.Error) {
	t.Helper()
	if err == nil {
		return
	}
	if _, ok := errors.AsType[*model.Error](err); !ok {
		t.Errorf("the error is a %T, not *model.Error", err)
	}
	if failure.Message == "" {
		t.Error("the error has no message")
	}
	for e := err; e != nil; {
		if strings.Contains(e.Error(), Key) {
			t.Errorf("the key is in an error: %v", e)
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
}

func (s suite) answers(t *testing.T) {
	usage := &Usage{Input: 12, Output: 5, Cached: 8, Reasoning: 2}
	tests := []struct {
		name string
		step Step
		want model.Response
	}{
		{
			"text in pieces",
			Step{Text: []string{"Hel", "lo, ", "wörld 你好"}, Usage: usage},
			model.Response{Text: "Hello, wörld 你好", FinishReason: model.FinishStop, Usage: model.Usage{Input: 12, Output: 5, CachedInput: 8, Reasoning: 2}},
		},
		{
			"reasoning",
			Step{Reasoning: []string{"hm", "m"}, Text: []string{"42"}},
			model.Response{Text: "42", Reasoning: "hmm", FinishReason: model.FinishStop},
		},
		{"empty reply", Step{}, model.Response{FinishReason: model.FinishStop}},
		{
			"output limit",
			Step{Text: []string{"and so"}, Finish: "length"},
			model.Response{Text: "and so", FinishReason: model.FinishLength},
		},
		{"no [DONE]", Step{Text: []string{"ok"}, NoDone: true}, model.Response{Text: "ok", FinishReason: model.FinishStop}},
		{
			"keep-alive comments",
			Step{Raw: []string{": ping", "", ": ping", ""}, Text: []string{"ok"}},
			model.Response{Text: "ok", FinishReason: model.FinishStop},
		},
		{"unknown finish reason", Step{Text: []string{"ok"}, Finish: "eos"}, model.Response{Text: "ok", FinishReason: model.FinishStop}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, failure, streamed := s.call(t, tt.step, request("hi"))
			if failure != nil {
				t.Fatal(failure)
			}
			if got.Text != tt.want.Text || got.Reasoning != tt.want.Reasoning ||
				got.FinishReason != tt.want.FinishReason || got.Usage != tt.want.Usage || len(got.ToolCalls) != 0 {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if streamed != got.Text {
				t.Errorf("streamed %q, answered %q", streamed, got.Text)
			}
			if got.Model != "m1" || got.ProviderID != "chatcmpl-1" {
				t.Errorf("model %q, id %q", got.Model, got.ProviderID)
			}
			if (got.FirstToken > 0) != (got.Text != "") || got.Duration < got.FirstToken {
				t.Errorf("first token after %v of %v", got.FirstToken, got.Duration)
			}
		})
	}
}

func (s suite) toolCalls(t *testing.T) {
	zero := 0
	tests := []struct {
		name   string
		step   Step
		want   []string // id name arguments
		finish model.FinishReason
	}{
		{
			"arguments in pieces",
			Step{Text: []string{"Let me see."}, ToolCalls: []ToolCall{
				{ID: "c1", Name: "bash_exec", Arguments: []string{"", `{"comm`, `and":"da`, `te"}`}},
			}},
			[]string{`c1 bash_exec {"command":"date"}`},
			model.FinishToolCalls,
		},
		{
			"parallel",
			Step{ToolCalls: []ToolCall{
				{ID: "c1", Name: "a", Arguments: []string{`{"x"`, `:1}`}},
				{ID: "c2", Name: "b", Arguments: []string{`{"y":`, `2`, `}`}},
			}},
			[]string{`c1 a {"x":1}`, `c2 b {"y":2}`},
			model.FinishToolCalls,
		},
		{"no arguments", Step{ToolCalls: []ToolCall{{ID: "c1", Name: "a"}}}, []string{`c1 a {}`}, model.FinishToolCalls},
		{
			"no ids",
			Step{ToolCalls: []ToolCall{
				{Name: "a", Arguments: []string{`{}`}}, {Name: "b", Arguments: []string{`{}`}},
			}},
			[]string{`call_1_0 a {}`, `call_1_1 b {}`},
			model.FinishToolCalls,
		},
		{
			"repeated ids",
			Step{ToolCalls: []ToolCall{
				{ID: "c", Name: "a", Arguments: []string{`{}`}}, {ID: "c", Name: "b", Arguments: []string{`{}`}},
			}},
			[]string{`c a {}`, `call_1_1 b {}`},
			model.FinishToolCalls,
		},
		{
			"one index for all",
			Step{ToolCalls: []ToolCall{
				{Index: &zero, ID: "c1", Name: "a", Arguments: []string{`{"x":1}`}},
				{Index: &zero, ID: "c2", Name: "b", Arguments: []string{`{"y":2}`}},
			}},
			[]string{`c1 a {"x":1}`, `c2 b {"y":2}`},
			model.FinishToolCalls,
		},
		{
			"one index, no ids",
			Step{ToolCalls: []ToolCall{
				{Index: &zero, Name: "a", Arguments: []string{`{"x":1}`}},
				{Index: &zero, Name: "a", Arguments: []string{`{"x":2}`}},
			}},
			[]string{`call_1_0 a {"x":1}`, `call_1_1 a {"x":2}`},
			model.FinishToolCalls,
		},
		{
			"finish says stop",
			Step{ToolCalls: []ToolCall{{ID: "c1", Name: "a", Arguments: []string{`{}`}}}, Finish: "stop"},
			[]string{`c1 a {}`},
			model.FinishToolCalls,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // made-up ids are the same for the same answer
				got, failure, _ := s.call(t, tt.step, request("hi"))
				if failure != nil {
					t.Fatal(failure)
				}
				var calls []string
				for _, c := range got.ToolCalls {
					calls = append(calls, c.ID+" "+c.Name+" "+string(c.Arguments))
				}
				if strings.Join(calls, "\n") != strings.Join(tt.want, "\n") || got.FinishReason != tt.finish {
					t.Errorf("got %q (%s), want %q (%s)", calls, got.FinishReason, tt.want, tt.finish)
				}
			}
		})
	}
}

// requests checks what is sent: system first, tools, a whole tool round.
func (s suite) requests(t *testing.T) {
	server := New(t, Say("fine"))
	temperature := 0.5
	_, err := s.newDriver(server.URL()).Generate(t.Context(), model.Request{
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
	if got := r.Header.Get("Authorization"); got != "Bearer "+Key {
		t.Errorf("authorization header %q", got)
	}
	c := r.Chat
	if !c.Stream || !c.StreamOptions.IncludeUsage || c.Model != "m1" || c.MaxCompletionTokens != 99 ||
		c.Temperature == nil || *c.Temperature != 0.5 || c.Store == nil || *c.Store {
		t.Errorf("request options: %s", r.Body)
	}
	var roles []string
	for _, m := range c.Messages {
		roles = append(roles, m.Role)
	}
	if got := strings.Join(roles, " "); got != "system user assistant tool assistant user" {
		t.Fatalf("roles %s", got)
	}
	call := c.Messages[2].ToolCalls
	if len(call) != 1 || call[0].ID != "c1" || call[0].Function.Arguments != `{"command":"date"}` || c.Messages[3].ToolCallID != "c1" {
		t.Errorf("tool round: %s", r.Body)
	}
	if len(c.Tools) != 1 || c.Tools[0].Function.Name != "bash_exec" || c.LastUser() != "thanks" {
		t.Errorf("tools and last message: %s", r.Body)
	}
}

// streaming checks that deltas are not held back until the end, and that the
// caller's context ends a call in the middle.
func (s suite) streaming(t *testing.T) {
	t.Run("first delta before the end", func(t *testing.T) {
		gate := make(chan struct{})
		server := New(t, Step{Text: []string{"first ", "second"}, Gate: gate})
		// The provider goes on only because the first delta has arrived.
		response, err := s.newDriver(server.URL()).Generate(t.Context(), request("hi"), func(d model.Delta) {
			if d.Text == "first " {
				close(gate)
			}
		})
		if err != nil || response.Text != "first second" {
			t.Errorf("%q, %v", response.Text, err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		server := New(t, Step{Text: []string{"first ", "second"}, Gate: make(chan struct{})})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := s.newDriver(server.URL()).Generate(ctx, request("hi"), func(model.Delta) { cancel() })
		if e := model.AsError(err); e == nil || e.Class != model.Canceled || e.Recoverable() {
			t.Errorf("canceled call: %v", err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		server := New(t, Step{Text: []string{"first ", "second"}, Gate: make(chan struct{})})
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		_, err := s.newDriver(server.URL()).Generate(ctx, request("hi"), nil)
		if e := model.AsError(err); e == nil || e.Class != model.Timeout || e.Recoverable() {
			t.Errorf("call past its deadline: %v", err)
		}
	})
}
