package drivertest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// raw are bytes that JSON cannot hold, by how a script writes them.
var raw = []string{"%FF%", "\xff", "%E2%", "\xe2", "%82AC%", "\x82\xac"}

// boundary: F1: bytes that are not UTF-8 do not come through, in no text of an answer.
func (s suite) boundary(t *testing.T) {
	t.Run("text", func(t *testing.T) {
		got, failure, streamed := s.call(t, modeltest.Step{Reasoning: []string{"h%FF%\tm %E2%", "%82AC%"}, Text: []string{"a%FF%b", " 5 %E2%", "%82AC%"}, Replace: raw}, request("hi"))
		if failure != nil || got.Text != "a\uFFFDb 5 \u20ac" || streamed != got.Text || got.Reasoning != "h\uFFFD\tm \u20ac" || len(got.Notes) != 2 {
			t.Errorf("%q, streamed %q, thought %q, notes %q, %v", got.Text, streamed, got.Reasoning, got.Notes, failure)
		}
	})
	t.Run("calls", func(t *testing.T) {
		got, failure, _ := s.call(t, modeltest.Step{ToolCalls: []modeltest.ToolCall{
			{ID: "c%FF%", Name: "a%FF%", Arguments: []string{`{"x":"%E2%`, `%82AC%%FF%"}`}},
			{ID: "c%FF%", Name: "b", Arguments: []string{`{"y":1}`}},
		}, Replace: raw}, request("hi"))
		if failure != nil || len(got.ToolCalls) != 2 {
			t.Fatalf("%+v, %v", got, failure)
		}
		a, b := got.ToolCalls[0], got.ToolCalls[1]
		if a.Name != "a_" || string(a.Arguments) != "{\"x\":\"\u20ac\uFFFD\"}" || a.Note == "" || !strings.Contains(a.Problem, "there is no tool") || b.Name != "b" || b.Problem != "" || a.ID == b.ID {
			t.Errorf("%+q", got.ToolCalls)
		}
		if text := fmt.Sprint(got); !utf8.ValidString(text) || len(got.Notes) < 2 {
			t.Errorf("notes %q of %q", got.Notes, text)
		}
	})
	t.Run("errors", func(t *testing.T) {
		_, failure, _ := s.call(t, modeltest.Step{Status: 400, Body: "{\"error\":{\"message\":\"no \xff\"}}"}, request("hi"))
		if failure == nil || !utf8.ValidString(failure.Error()) {
			t.Errorf("%q", failure)
		}
	})
}

// refusedCalls: F9: a call that cannot be made is no failure of the answer, and can be sent
// back with its result: every provider wants a JSON object, a name and an id.
func (s suite) refusedCalls(t *testing.T) {
	for name, c := range map[string]struct {
		step    modeltest.Step
		problem string
		sent    string // of the arguments
	}{
		"arguments cut off":      {modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c", Name: "a", Arguments: []string{`{"x":`}}}}, "not valid JSON", `{"_raw":"{\"x\":"}`},
		"arguments an array":     {modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c", Name: "a", Arguments: []string{`[1]`}}}}, "not a JSON object", `{"_raw":"[1]"}`},
		"arguments words":        {modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c", Name: "a", Arguments: []string{`ls %FF%`}}}, Replace: raw}, "not a JSON object", "{\"_raw\":\"ls \uFFFD\"}"},
		"no name":                {modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c", Arguments: []string{`{}`}}}}, "names no tool", `{}`},
		"name with blanks":       {modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c", Name: "a tool", Arguments: []string{`{}`}}}}, "there is no tool", `{}`},
		"endless id":             {modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: strings.Repeat("c", 300<<10), Name: "a", Arguments: []string{`{}`}}}}, "", `{}`},
		"limit inside arguments": {modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c", Name: "a", Arguments: []string{`{"x":`}}}, Finish: "length"}, "not valid JSON", `{"_raw":"{\"x\":"}`},
		"arguments too large":    {modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c", Name: "a", Arguments: []string{`{"x":"` + strings.Repeat("y", model.MaxArguments) + `"}`}}}}, "larger than", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.step.ToolCalls = append(c.step.ToolCalls, modeltest.ToolCall{ID: "good", Name: "b", Arguments: []string{`{"y":1}`}})
			server := modeltest.New(t, c.step, modeltest.Say("I see"))
			d, req := s.newDriver(server.URL(), 0), request("go")
			first, err := d.Generate(t.Context(), req, nil)
			if err != nil || len(first.ToolCalls) != 2 {
				t.Fatalf("%+v, %v", first, err)
			}
			if p := first.ToolCalls[0].Problem; !strings.Contains(p, c.problem) || (p == "") != (c.problem == "") || first.ToolCalls[1].Problem != "" {
				t.Errorf("problems %q and %q", p, first.ToolCalls[1].Problem)
			}
			req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Text: first.Text, Replay: first.Replay, ToolCalls: first.ToolCalls})
			for _, call := range first.ToolCalls {
				req.Messages = append(req.Messages, model.Message{Role: model.RoleTool, ToolCallID: call.ID, Name: call.Name, Text: "result"})
			}
			if _, err := d.Generate(t.Context(), req, nil); err != nil {
				t.Fatal(err)
			}
			sent, err := sentCalls(server.Requests()[1].Body)
			if err != nil || len(sent) != 2 || sent[1] != `{"y":1}` || c.sent != "" && sent[0] != c.sent {
				t.Errorf("sent %.200q, %v", sent, err)
			}
		})
	}
}

var label = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// sentCalls are the arguments of all tool calls of a request, of either format; an error is
// what a provider would refuse it for.
func sentCalls(body []byte) (arguments []string, err error) {
	var in struct {
		Messages []struct {
			Content   json.RawMessage
			ToolCalls []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
			ToolCallID string `json:"tool_call_id"`
		}
	}
	if !utf8.Valid(body) {
		return nil, errors.New("the request is not UTF-8")
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	ids := map[string]int{}
	call := func(id, name, args string) {
		var object map[string]any
		if json.Unmarshal([]byte(args), &object) != nil || object == nil || !label.MatchString(name) || id == "" || ids[id] > 0 {
			err = fmt.Errorf("call %.80q of %.80q with %.80q", id, name, args)
		}
		ids[id]++
		arguments = append(arguments, args)
	}
	for _, m := range in.Messages {
		for _, c := range m.ToolCalls {
			call(c.ID, c.Function.Name, c.Function.Arguments)
		}
		if m.ToolCallID != "" {
			ids[m.ToolCallID]++
		}
		var blocks []struct {
			Type, ID, Name string
			Input          json.RawMessage
			ToolUseID      string `json:"tool_use_id"`
		}
		_ = json.Unmarshal(m.Content, &blocks) // a text is none
		for _, b := range blocks {
			switch b.Type {
			case "tool_use":
				call(b.ID, b.Name, string(b.Input))
			case "tool_result":
				ids[b.ToolUseID]++
			}
		}
	}
	for id, n := range ids {
		if n != 2 {
			err = fmt.Errorf("call %.80q is without a result", id)
		}
	}
	return arguments, err
}

// endless: F19: an answer that is too large is cut off, or an error that is not repeated,
// and never fills the memory.
func (s suite) endless(t *testing.T) {
	mega := strings.Repeat("x", 1<<20)
	t.Run("text", func(t *testing.T) {
		got, failure, streamed := s.call(t, modeltest.Step{Text: repeat(mega, 20)}, request("hi"))
		if failure != nil || got.FinishReason != model.FinishLength || len(got.Text) > 10<<20 || len(streamed) != len(got.Text) || !strings.Contains(got.Text, "is incomplete") {
			t.Errorf("%d bytes, %s, %v", len(got.Text), got.FinishReason, failure)
		}
	})
	t.Run("arguments", func(t *testing.T) {
		got, failure, _ := s.call(t, modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c", Name: "a", Arguments: append([]string{`{"x":"`}, repeat(mega, 20)...)}}}, request("hi"))
		if failure != nil || len(got.ToolCalls) != 1 || !strings.Contains(got.ToolCalls[0].Problem, "larger than") || len(got.ToolCalls[0].Arguments) > 5<<10 {
			t.Errorf("%.300s, %v", fmt.Sprint(got), failure)
		}
	})
	t.Run("calls", func(t *testing.T) {
		step := modeltest.Step{}
		for n := range 300 {
			step.ToolCalls = append(step.ToolCalls, modeltest.ToolCall{ID: fmt.Sprint("c", n), Name: "a", Arguments: []string{`{}`}})
		}
		got, failure, _ := s.call(t, step, request("hi"))
		if failure != nil || len(got.ToolCalls) != 128 {
			t.Errorf("%d calls, %v", len(got.ToolCalls), failure)
		}
	})
	for name, step := range map[string]modeltest.Step{
		"comments": {Raw: repeat(": "+mega, 40)},
		// Events that say nothing, of both formats.
		"nothing":  {Raw: repeat(strings.Repeat("event: ping\ndata: {\"type\":\"ping\",\"choices\":[]}\n\n", 1<<10), 600)},
		"spaces":   {Raw: []string{"data: " + strings.Repeat(" ", 40<<20)}},
		"one line": {Raw: []string{`data: {"choices":[{"delta":{"content":"` + strings.Repeat(mega, 40)}},
		"gzip":     {Header: map[string]string{"Content-Encoding": "gzip", "Content-Type": "text/event-stream"}, Body: bomb(t, 100<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, failure, _ := s.call(t, step, request("hi"))
			runtime.ReadMemStats(&after)
			if failure == nil || failure.Class != model.TooLarge || failure.Recoverable() {
				t.Errorf("%.300s, %v", fmt.Sprint(got), failure)
			}
			t.Logf("%d MiB were allocated", (after.TotalAlloc-before.TotalAlloc)>>20)
		})
	}
	t.Run("error body", func(t *testing.T) {
		_, failure, _ := s.call(t, modeltest.Step{Status: 401, Header: map[string]string{"Content-Encoding": "gzip"}, Body: bomb(t, 40<<20)}, request("hi"))
		if failure == nil || failure.Class != model.Auth || failure.Status != 401 {
			t.Errorf("%v", failure)
		}
	})
}

func repeat(piece string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = piece
	}
	return out
}

// bomb is a body that is n bytes of blanks when it is decompressed.
func bomb(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	blanks := bytes.Repeat([]byte{' '}, 1<<20)
	for ; err == nil && n > 0; n -= len(blanks) {
		_, err = z.Write(blanks)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
