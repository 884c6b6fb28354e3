package drivertest

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// New makes a driver for a base URL, with [modeltest.Key] and without retries
// of its own; silence is its idle timeout, 0 the default.
type New func(baseURL string, silence time.Duration) model.Driver

// Run is the suite every network driver must pass.
func Run(t *testing.T, newDriver New) {
	s := suite{newDriver: newDriver}
	t.Run("answers", s.answers)
	t.Run("tool calls", s.toolCalls)
	t.Run("rounds", s.rounds)
	t.Run("images", s.images)
	t.Run("boundary", s.boundary)
	t.Run("refused calls", s.refusedCalls)
	t.Run("endless", s.endless)
	t.Run("refusals", s.refusals)
	t.Run("broken streams", s.brokenStreams)
	t.Run("cut everywhere", s.cutEverywhere)
	t.Run("requests", s.requests)
	t.Run("streaming", s.streaming)
	t.Run("network", s.network)
}

type suite struct{ newDriver New }

// request is the plain question of the suite.
func request(text string) model.Request {
	return model.Request{Model: "m1", Messages: []model.Message{{Role: model.RoleUser, Text: text}}}
}

// call plays one step to a new driver and collects the streamed deltas.
func (s suite) call(t *testing.T, step modeltest.Step, req model.Request) (model.Response, *model.Error, string) {
	t.Helper()
	server := modeltest.New(t, step)
	var streamed strings.Builder
	response, err := s.newDriver(server.URL(), 0).Generate(t.Context(), req, func(d model.Delta) {
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
		if strings.Contains(e.Error(), modeltest.Key) {
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
	usage := &modeltest.Usage{Input: 12, Output: 5, Cached: 8, CacheWrite: 3, Reasoning: 2}
	tests := []struct {
		name string
		step modeltest.Step
		want model.Response
	}{
		{
			"text in pieces",
			modeltest.Step{Text: []string{"Hel", "lo, ", "wörld 你好"}, Usage: usage},
			model.Response{Text: "Hello, wörld 你好", FinishReason: model.FinishStop, Usage: model.Usage{Input: 12, Output: 5, CachedInput: 8, CacheWrite: 3, Reasoning: 2}},
		},
		{
			"reasoning",
			modeltest.Step{Reasoning: []string{"hm", "m"}, Text: []string{"42"}},
			model.Response{Text: "42", Reasoning: "hmm", FinishReason: model.FinishStop},
		},
		{"empty reply", modeltest.Step{}, model.Response{FinishReason: model.FinishStop}},
		{
			"output limit",
			modeltest.Step{Text: []string{"and so"}, Finish: "length"},
			model.Response{Text: "and so\n\n[This answer is incomplete: the model reached its output limit.]", FinishReason: model.FinishLength},
		},
		{"no [DONE]", modeltest.Step{Text: []string{"ok"}, NoDone: true}, model.Response{Text: "ok", FinishReason: model.FinishStop}},
		{
			"keep-alive comments",
			modeltest.Step{Raw: []string{": ping", "", ": ping", ""}, Text: []string{"ok"}},
			model.Response{Text: "ok", FinishReason: model.FinishStop},
		},
		{"byte order mark", modeltest.Step{Text: []string{"ok"}, Prefix: "\uFEFF"}, model.Response{Text: "ok", FinishReason: model.FinishStop}},
		{"unknown finish reason", modeltest.Step{Text: []string{"ok"}, Finish: "eos"}, model.Response{Text: "ok", FinishReason: model.FinishStop}},
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
			if got.Model != "m1" || !strings.HasSuffix(got.ProviderID, "1") {
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
		step   modeltest.Step
		want   []string // id name arguments
		finish model.FinishReason
	}{
		{
			"arguments in pieces",
			modeltest.Step{Text: []string{"Let me see."}, ToolCalls: []modeltest.ToolCall{
				{ID: "c1", Name: "bash_exec", Arguments: []string{"", `{"comm`, `and":"da`, `te"}`}},
			}},
			[]string{`c1 bash_exec {"command":"date"}`},
			model.FinishToolCalls,
		},
		{
			"parallel",
			modeltest.Step{ToolCalls: []modeltest.ToolCall{
				{ID: "c1", Name: "a", Arguments: []string{`{"x"`, `:1}`}},
				{ID: "c2", Name: "b", Arguments: []string{`{"y":`, `2`, `}`}},
			}},
			[]string{`c1 a {"x":1}`, `c2 b {"y":2}`},
			model.FinishToolCalls,
		},
		{"no arguments", modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "a"}}}, []string{`c1 a {}`}, model.FinishToolCalls},
		{
			"no ids",
			modeltest.Step{ToolCalls: []modeltest.ToolCall{
				{Name: "a", Arguments: []string{`{}`}}, {Name: "b", Arguments: []string{`{}`}},
			}},
			[]string{`call_1_0 a {}`, `call_1_1 b {}`},
			model.FinishToolCalls,
		},
		{
			"repeated ids",
			modeltest.Step{ToolCalls: []modeltest.ToolCall{
				{ID: "c", Name: "a", Arguments: []string{`{}`}}, {ID: "c", Name: "b", Arguments: []string{`{}`}},
			}},
			[]string{`c a {}`, `call_1_1 b {}`},
			model.FinishToolCalls,
		},
		{
			"one index for all",
			modeltest.Step{ToolCalls: []modeltest.ToolCall{
				{Index: &zero, ID: "c1", Name: "a", Arguments: []string{`{"x":1}`}},
				{Index: &zero, ID: "c2", Name: "b", Arguments: []string{`{"y":2}`}},
			}},
			[]string{`c1 a {"x":1}`, `c2 b {"y":2}`},
			model.FinishToolCalls,
		},
		{
			"one index, no ids",
			modeltest.Step{ToolCalls: []modeltest.ToolCall{
				{Index: &zero, Name: "a", Arguments: []string{`{"x":1}`}},
				{Index: &zero, Name: "a", Arguments: []string{`{"x":2}`}},
			}},
			[]string{`call_1_0 a {"x":1}`, `call_1_1 a {"x":2}`},
			model.FinishToolCalls,
		},
		{
			"finish says stop",
			modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "a", Arguments: []string{`{}`}}}, Finish: "stop"},
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

// images: those of a person, and those of the results of parallel calls, reach the provider behind all of them, and a request that goes on begins
// with the bytes of the one before.
func (s suite) images(t *testing.T) {
	png, gif := append([]byte("\x89PNG\r\n\x1a\n"), "rest"...), []byte("GIF89a rest")
	server := modeltest.New(t, modeltest.Say("seen"), modeltest.Say("seen"))
	d, req := s.newDriver(server.URL(), 0), request("look")
	req.Messages[len(req.Messages)-1].Images = []model.Image{{MIME: "image/gif", Data: gif}} // of a person
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c1", Name: "a", Arguments: []byte("{}")}, {ID: "c2", Name: "a", Arguments: []byte("{}")}}},
		model.Message{Role: model.RoleTool, ToolCallID: "c1", Name: "a", Text: "one", Images: []model.Image{{MIME: "image/png", Data: png}, {MIME: "image/gif", Data: gif}}},
		model.Message{Role: model.RoleTool, ToolCallID: "c2", Name: "a", Text: "two", Images: []model.Image{{MIME: "image/gif", Data: gif}}},
	)
	if _, err := d.Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	req.Messages = append(req.Messages, model.Message{Role: model.RoleUser, Text: "and now?"})
	if _, err := d.Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	for n, r := range server.Requests() {
		var results, images []string
		for _, m := range r.Chat.Messages {
			if m.Role == "tool" {
				results = append(results, m.ToolCallID+" "+m.Content)
			}
			for _, i := range m.Images {
				images = append(images, i.MIME+" "+string(i.Data))
			}
		}
		if got := strings.Join(results, ", "); got != "c1 one, c2 two" {
			t.Errorf("request %d: results %q", n, got)
		}
		if got, want := strings.Join(images, ", "), "image/gif "+string(gif)+", image/png "+string(png)+", image/gif "+string(gif)+", image/gif "+string(gif); got != want {
			t.Errorf("request %d: images %q", n, got)
		}
	}
	first, second := server.Requests()[0].Chat.Messages, server.Requests()[1].Chat.Messages
	if len(second) != len(first)+1 || !reflect.DeepEqual(first, second[:len(first)]) {
		t.Errorf("the second request begins with other messages: %+v, then %+v", first, second)
	}
}

// rounds: parallel calls, their results, and what both rounds cost together.
func (s suite) rounds(t *testing.T) {
	server := modeltest.New(t,
		modeltest.Step{Reasoning: []string{"I ", "look"}, ToolCalls: []modeltest.ToolCall{
			{ID: "c1", Name: "a", Arguments: []string{`{"x":`, `1}`}}, {ID: "c2", Name: "b", Arguments: []string{`{}`}},
		}, Usage: &modeltest.Usage{Input: 100, Output: 20, CacheWrite: 90, Reasoning: 5}},
		modeltest.Step{Text: []string{"both"}, Usage: &modeltest.Usage{Input: 130, Output: 4, Cached: 90, CacheWrite: 30}})
	d, req := s.newDriver(server.URL(), 0), request("go")
	first, err := d.Generate(t.Context(), req, nil)
	if err != nil || len(first.ToolCalls) != 2 || first.Reasoning != "I look" {
		t.Fatalf("%+v, %v", first, err)
	}
	req.Messages = append(req.Messages, model.Message{
		Role: model.RoleAssistant, Text: first.Text, Reasoning: first.Reasoning, Replay: first.Replay, ToolCalls: first.ToolCalls,
	})
	for _, c := range first.ToolCalls {
		req.Messages = append(req.Messages, model.Message{Role: model.RoleTool, ToolCallID: c.ID, Name: c.Name, Text: "did " + c.Name})
	}
	second, err := d.Generate(t.Context(), req, nil)
	if err != nil || second.Text != "both" {
		t.Fatalf("%+v, %v", second, err)
	}
	total := model.Usage{
		Input: first.Usage.Input + second.Usage.Input, Output: first.Usage.Output + second.Usage.Output,
		CachedInput: first.Usage.CachedInput + second.Usage.CachedInput, CacheWrite: first.Usage.CacheWrite + second.Usage.CacheWrite,
		Reasoning: first.Usage.Reasoning + second.Usage.Reasoning,
	}
	if want := (model.Usage{Input: 230, Output: 24, CachedInput: 90, CacheWrite: 120, Reasoning: 5}); total != want {
		t.Errorf("usage %+v, want %+v", total, want)
	}
	var results []string
	for _, m := range server.Requests()[1].Chat.Messages {
		if m.Role == "tool" {
			results = append(results, m.ToolCallID+" "+m.Content)
		}
	}
	if got := strings.Join(results, ", "); got != "c1 did a, c2 did b" {
		t.Errorf("results %q", got)
	}
}
