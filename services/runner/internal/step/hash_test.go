package step

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// Whatever of a request is changed gives it another hash, also where a text moves from one
// field to the next; the number of the try does not.
func TestHash(t *testing.T) {
	warm, cold := 1.5, 0.0
	make := func() model.Request {
		return model.Request{
			Model: "m", System: "s", MaxOutputTokens: 1, Temperature: &warm, Thinking: "off",
			Messages: []model.Message{
				{Role: model.RoleUser, Text: "ab", Name: "c"},
				{Role: model.RoleAssistant, Reasoning: "r", Replay: json.RawMessage(`{}`), ToolCalls: []model.ToolCall{{ID: "1", Name: "n", Arguments: json.RawMessage(`{}`)}}},
				{Role: model.RoleTool, Text: "x", ToolCallID: "1"},
			},
			Tools: []model.Tool{{Name: "n", Description: "d", Schema: json.RawMessage(`{}`)}},
		}
	}
	seen := map[string]string{string(hash(make())): "nothing"}
	for what, change := range map[string]func(r *model.Request){
		"model":              func(r *model.Request) { r.Model = "M" },
		"system":             func(r *model.Request) { r.System = "" },
		"model and system":   func(r *model.Request) { r.Model, r.System = "ms", "" },
		"limit":              func(r *model.Request) { r.MaxOutputTokens = 2 },
		"temperature":        func(r *model.Request) { r.Temperature = &cold },
		"no temperature":     func(r *model.Request) { r.Temperature = nil },
		"thinking":           func(r *model.Request) { r.Thinking = "on" },
		"role":               func(r *model.Request) { r.Messages[0].Role = model.RoleSystem },
		"text":               func(r *model.Request) { r.Messages[0].Text = "a" },
		"text and reasoning": func(r *model.Request) { r.Messages[0].Text, r.Messages[0].Reasoning = "a", "b" },
		"name":               func(r *model.Request) { r.Messages[0].Name = "" },
		"reasoning":          func(r *model.Request) { r.Messages[1].Reasoning = "R" },
		"replay":             func(r *model.Request) { r.Messages[1].Replay = nil },
		"call":               func(r *model.Request) { r.Messages[1].ToolCalls = nil },
		"id of the call":     func(r *model.Request) { r.Messages[1].ToolCalls[0].ID = "2" },
		"name of the call":   func(r *model.Request) { r.Messages[1].ToolCalls[0].Name = "N" },
		"arguments":          func(r *model.Request) { r.Messages[1].ToolCalls[0].Arguments = json.RawMessage(`[]`) },
		"answered call":      func(r *model.Request) { r.Messages[2].ToolCallID = "2" },
		"one message less":   func(r *model.Request) { r.Messages = r.Messages[:2] },
		"no tools":           func(r *model.Request) { r.Tools = nil },
		"name of the tool":   func(r *model.Request) { r.Tools[0].Name = "N" },
		"what the tool does": func(r *model.Request) { r.Tools[0].Description = "" },
		"schema of the tool": func(r *model.Request) { r.Tools[0].Schema = nil },
		"a long text":        func(r *model.Request) { r.System = string(bytes.Repeat([]byte("s"), 10_000)) },
		"another long text":  func(r *model.Request) { r.System = string(bytes.Repeat([]byte("s"), 10_001)) },
	} {
		r := make()
		change(&r)
		h := string(hash(r))
		if other, ok := seen[h]; ok {
			t.Errorf("a change of %s has the hash of a change of %s", what, other)
		}
		seen[h] = what
	}
	r := make()
	r.Try, r.Away = 7, 3
	if !bytes.Equal(hash(r), hash(make())) {
		t.Error("the number of the try is in the hash")
	}
}
