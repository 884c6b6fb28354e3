// Package message implements the tool that sends a message to the peer during a turn and, in a
// home with accounts of chat platforms, changes earlier messages and writes in other
// conversations of the agent.
//
// It sends nothing itself: its messages are the Messages of its result, which are written in one
// transaction with it. So a call that was begun and has no result was not sent, and may be
// made again. The registry decides where the agent may write, and the deliverer executes what is
// written.
//
// It is a package of its own because each tool is: the list of the runner's tools names it
// in one line.
package message

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/theclaw/agents/internal/channel"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/silence"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Name of the tool.
const Name = "message_send"

// send is the default action.
const send = "send"

// Tool implements [toolset.Tool], [toolset.Sender] and [toolset.Varying].
type Tool struct {
	accounts []string // by which messages can be addressed; nil: none can
}

// In implements [toolset.Varying].
func (Tool) In(c *registrypb.TurnConfig, _ func(string) bool) toolset.Tool {
	return Tool{accounts: c.GetAccounts()}
}

// Spec implements [toolset.Tool].
func (t Tool) Spec() toolset.Spec {
	s := toolset.Spec{
		Name: Name,
		Description: "Sends a message to the person you talk to at once, while you go on working. " +
			"Your last answer is sent anyway: do not send it with this tool too.",
		Schema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"the message"}},"required":["text"]}`),
		Needs:  toolset.Peer, Summary: toolset.Summarize("text"),
	}
	if len(t.accounts) == 0 {
		return s
	}
	s.Description += " It also edits, deletes and marks earlier messages, and for an owner it writes in another conversation of yours, or to an owner: with channel and to. " +
		"What it returns as message_id names the message in later calls. That a call is queued does not mean that the platform accepts it."
	names, _ := json.Marshal(t.accounts) // it is of texts
	s.Schema = json.RawMessage(`{"type":"object","properties":{` +
		`"action":{"type":"string","enum":["send","edit","react","delete"],"description":"send unless given"},` +
		`"text":{"type":"string","description":"send: the message; edit: the new text; react: one emoji, nothing removes it"},` +
		`"message_id":{"type":"string","description":"edit, react, delete: the message_id that an earlier call returned, or the id at the platform; react without it marks the message that you answer"},` +
		`"channel":{"type":"string","enum":` + string(names) + `,"description":"the account that sends; that of this conversation unless given"},` +
		`"to":{"type":"string","description":"the conversation: a session key such as agent:ID:telegram:tg:dm:1207, or the id at the platform of a chat or person you have a conversation with, or of an owner; this conversation unless given"}},` +
		`"additionalProperties":false}`)
	s.Summary = toolset.Summarize("action", "channel", "to", "text")
	return s
}

// Class implements [toolset.Tool]: the message is written with the result, so a call without one has sent nothing.
func (Tool) Class(toolset.Call) toolset.Class { return toolset.Idempotent }

// arguments are those of a call.
type arguments struct {
	Action    string `json:"action"`
	Text      string `json:"text"`
	MessageID string `json:"message_id"`
	Channel   string `json:"channel"`
	To        string `json:"to"`
}

// elsewhere reports whether the call does more than to send a text to the peer.
func (a arguments) elsewhere() bool {
	return a.Action != "" && a.Action != send || a.MessageID != "" || a.Channel != "" || a.To != ""
}

// read returns the arguments with the text as it is sent: without the word of package silence, and empty when nothing
// is left.
func read(raw json.RawMessage) (a arguments, err error) {
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, err
	}
	if a.Text = silence.Text(a.Text); strings.TrimSpace(a.Text) == "" {
		a.Text = ""
	}
	return a, nil
}

// Run implements [toolset.Tool].
func (t Tool) Run(ctx context.Context, c toolset.Call) toolset.Result {
	a, err := read(c.Args)
	switch {
	case err != nil && len(t.accounts) == 0:
		return toolset.Failed("the arguments are not understood: text is a string")
	case err != nil:
		return toolset.Failed("the arguments are not understood: all are strings")
	case a.elsewhere():
		return t.address(ctx, c, a)
	case a.Text == "":
		return toolset.Failed("text is missing: nothing was sent")
	}
	said := outcome{Sent: true}
	if len(t.accounts) > 0 {
		said.MessageID = c.Key
	}
	return toolset.Result{JSON: said.json(), Messages: []toolset.Message{{Text: a.Text}}}
}

// address makes a call for another conversation, or for an earlier message.
func (t Tool) address(ctx context.Context, c toolset.Call, a arguments) toolset.Result {
	action := strings.TrimPrefix(a.Action, send)
	switch {
	case len(t.accounts) == 0:
		return toolset.Failed("nothing was sent: only the person you talk to can be addressed here, with text and no other argument")
	case a.Text == "" && (action == "" || action == channel.ActionEdit):
		return toolset.Failed("text is missing: nothing was sent")
	}
	m := toolset.Message{Text: a.Text, Address: toolset.Address{Action: action, MessageID: a.MessageID, Channel: a.Channel, To: a.To}}
	if action == channel.ActionDelete {
		m.Text = ""
	}
	if why := c.CheckMessage(ctx, m); why != "" {
		return toolset.Failed("nothing was sent: " + why)
	}
	said := outcome{Queued: cmp.Or(action, send)}
	if action == "" {
		said.MessageID = c.Key
	}
	return toolset.Result{JSON: said.json(), Messages: []toolset.Message{m}}
}

// outcome is the result of a call.
type outcome struct {
	Sent   bool   `json:"sent,omitempty"`   // to the peer
	Queued string `json:"queued,omitempty"` // the action, where the message has an address
	// MessageID names the message in later calls.
	MessageID string `json:"message_id,omitempty"`
}

func (o outcome) json() []byte {
	b, _ := json.Marshal(o) // it is of texts
	return b
}

// Sent implements [toolset.Sender].
func (Tool) Sent(arguments json.RawMessage) []toolset.Message {
	a, err := read(arguments)
	if err != nil || a.Text == "" || a.elsewhere() {
		return nil
	}
	return []toolset.Message{{Text: a.Text}}
}
