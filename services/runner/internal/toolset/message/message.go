// Package message implements the tool that sends a message to the peer during a turn.
//
// It runs nothing: its messages are the Messages of its result, which are written in one
// transaction with it. So a call that was begun and has no result was not sent, and may be
// made again.
//
// It is a package of its own because each tool is: the list of the runner's tools names it
// in one line.
package message

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/theclaw/agents/services/runner/internal/silence"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Name of the tool.
const Name = "message_send"

// Tool implements [toolset.Tool] and [toolset.Sender].
type Tool struct{}

// Spec implements [toolset.Tool].
func (Tool) Spec() toolset.Spec {
	return toolset.Spec{
		Name: Name,
		Description: "Sends a message to the person you talk to at once, while you go on working. " +
			"Your last answer is sent anyway: do not send it with this tool too.",
		Schema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"the message"}},"required":["text"]}`),
		Needs:  toolset.Peer, Summary: toolset.Summarize("text"),
	}
}

// Class implements [toolset.Tool].
func (Tool) Class(toolset.Call) toolset.Class { return toolset.Idempotent }

// Run implements [toolset.Tool].
func (t Tool) Run(_ context.Context, c toolset.Call) toolset.Result {
	said, err := text(c.Args)
	switch {
	case err != nil:
		return toolset.Failed("the arguments are not understood: text is a string")
	case said == "":
		return toolset.Failed("text is missing: nothing was sent")
	}
	return toolset.Result{JSON: []byte(`{"sent":true}`), Messages: []toolset.Message{{Text: said}}}
}

// Sent implements [toolset.Sender].
func (Tool) Sent(arguments json.RawMessage) []toolset.Message {
	said, err := text(arguments)
	if err != nil || said == "" {
		return nil
	}
	return []toolset.Message{{Text: said}}
}

// text is what a call says, without the word of package silence; empty when nothing is left.
func text(arguments json.RawMessage) (string, error) {
	var a struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return "", err
	}
	said := silence.Text(a.Text)
	if strings.TrimSpace(said) == "" {
		return "", nil
	}
	return said, nil
}
