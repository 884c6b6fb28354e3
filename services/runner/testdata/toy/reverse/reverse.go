// Package reverse is a tool that reverses a text. It is an example: all of a tool but its
// line in services/runner/tools.go.
package reverse

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Tool implements [toolset.Tool].
type Tool struct{}

// Spec implements [toolset.Tool].
func (Tool) Spec() toolset.Spec {
	return toolset.Spec{
		Name: "reverse", Description: "Answers a text from its end to its beginning.",
		Schema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
	}
}

// Class implements [toolset.Tool].
func (Tool) Class(toolset.Call) toolset.Class { return toolset.Read }

// Run implements [toolset.Tool].
func (Tool) Run(_ context.Context, c toolset.Call) toolset.Result {
	var a struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(c.Args, &a); err != nil || a.Text == "" {
		return toolset.Failed("text is missing, or no string")
	}
	text := []rune(a.Text)
	slices.Reverse(text)
	return toolset.Result{Text: string(text)}
}
