package model

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Role is the author of a [Message].
type Role string

// The roles of a conversation. RoleSystem inside Messages is for notes that
// stand between turns; the main system prompt is [Request.System].
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of the conversation sent to the model.
type Message struct {
	Role Role
	// Text is what was said; for RoleTool the result of the call.
	Text string
	// Images stand behind the text of a RoleTool message.
	Images []Image `json:",omitempty"`
	// Reasoning is what the model thought before this assistant message. It is
	// sent back only to providers that demand it (Settings: replay_reasoning).
	Reasoning string
	// Replay is the Response.Replay this assistant message came with. Only the
	// driver that made it reads it; every other one leaves it out.
	Replay json.RawMessage `json:",omitempty"`
	// ToolCalls are the calls an assistant message asked for.
	ToolCalls []ToolCall
	// ToolCallID names the call that a RoleTool message answers.
	ToolCallID string
	// Name is the tool's name for RoleTool, else an optional speaker name.
	Name string
}

// Image is an image in a message.
type Image struct {
	SHA256     string // of the data, in hex
	MIME, Name string
	Size       int64 // in bytes
	// Data is set in a request, and nowhere before.
	Data []byte `json:"-"`
}

// LeftOut is a line of text in place of the image.
func (i Image) LeftOut(why string) string {
	return fmt.Sprintf("[image %q of type %s, %d bytes, left out: %s]", i.Name, i.MIME, i.Size, why)
}

// WithoutImages is the message with a line of text in place of each of its images.
func (m Message) WithoutImages(why string) Message {
	for _, i := range m.Images {
		m.Text += "\n" + i.LeftOut(why)
	}
	m.Images = nil
	return m
}

// ToolCall is one request of the model to run a tool.
type ToolCall struct {
	// ID is never empty and unique in the conversation.
	ID   string
	Name string
	// Arguments is a valid JSON object; a call without arguments carries {}, and one whose
	// arguments are none {"_raw": "the beginning of what the model wrote"}.
	Arguments json.RawMessage
	// Problem is why the call cannot be made, for the model; empty: it can.
	Problem string `json:",omitempty"`
	// Note is how the arguments differ from what the model wrote; empty: they do not.
	Note string `json:",omitempty"`
}

// Tool is a tool the model may call.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON Schema object of the arguments; empty means none.
	Schema json.RawMessage
}

// Request is one model call.
type Request struct {
	// Model is the provider's name of the model.
	Model string
	// System is the system prompt; empty sends none.
	System   string
	Messages []Message
	Tools    []Tool
	// MaxOutputTokens bounds the answer; 0 leaves it to the provider.
	MaxOutputTokens int
	// Temperature is left to the provider when nil.
	Temperature *float64
	// Thinking is how the model is to think in this call, instead of as its provider
	// is set, a value of package thinking; empty: as set. Only drivers that
	// can tell their model read it.
	Thinking string `json:",omitempty"`
	// Try is the number of this try of the step, from 1 (0 means 1). Providers
	// never see it; package retry takes the backoff from it.
	Try int
	// Away is how many of the tries before, in a row, found the provider unavailable.
	Away int
}

// Delta is a piece of an answer as it arrives. Every field may be empty.
type Delta struct {
	Text      string
	Reasoning string
	// Tool is set by drivers whose program runs tools itself.
	Tool *ToolUse
}

// ToolUse is a tool that a program runs itself: reported once when it begins, with
// no Result, and once when it has ended. They come in pairs.
type ToolUse struct {
	Call ToolCall
	// Result is JSON.
	Result json.RawMessage
}

// FinishReason says why a complete answer ended.
type FinishReason string

// Finish reasons. Content filters, lost connections and the like are errors.
const (
	// FinishStop: the model said all it wanted.
	FinishStop FinishReason = "stop"
	// FinishLength: the output limit was reached; the text is usable, incomplete, and
	// says so at its end.
	FinishLength FinishReason = "length"
	// FinishToolCalls: the model waits for the results of Response.ToolCalls.
	FinishToolCalls FinishReason = "tool_calls"
)

// Usage counts tokens as the provider reports them; zero when it did not.
type Usage struct {
	Input  int64
	Output int64
	// CachedInput is the part of Input served from the provider's cache.
	CachedInput int64
	// CacheWrite is the part of Input that was put into the cache, where the
	// provider bills that apart.
	CacheWrite int64
	// Reasoning is the part of Output the model spent thinking.
	Reasoning int64
}

// Response is one complete answer.
type Response struct {
	Text      string
	Reasoning string
	// Replay is what this provider wants back unchanged with the message, such
	// as signed thinking; a JSON object of the driver's own, or empty.
	Replay    json.RawMessage
	ToolCalls []ToolCall
	Usage     Usage
	// FinishReason is FinishToolCalls exactly when ToolCalls is not empty, but
	// for an answer with calls that hit the limit, which keeps FinishLength.
	FinishReason FinishReason
	// Model is the model that answered, as the provider names it.
	Model string
	// ProviderID is the provider's id of this answer, for support questions.
	ProviderID string
	// FirstToken is the time from the call to the first delta.
	FirstToken time.Duration
	// Duration is the time from the call to the end of the answer.
	Duration time.Duration
	// Notes say in one sentence each how the answer differs from what the provider
	// sent, for logs.
	Notes []string
}

// Driver calls one provider. Generate makes one call and no retries,
// hands each piece to onDelta (which may be nil, and is called from the
// calling goroutine only) and returns when the answer is complete. Every error
// is an [*Error]. A Driver is safe for concurrent use.
type Driver interface {
	// Name is the provider's name; breakers and metrics are kept by it.
	Name() string
	Generate(ctx context.Context, req Request, onDelta func(Delta)) (Response, error)
}
