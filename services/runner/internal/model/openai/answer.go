package openai

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/wire"
)

// answer puts the chunks of one stream together.
//
//	no choice yet --choice--> open --finish reason--> ended --end of body--> complete
//	      any other way for the stream to end is an error, but for one:
//	open --larger than an answer may be--> full, which is an answer that is truncated
type answer struct {
	start       time.Time
	firstToken  time.Duration
	chunks      int
	sawChoice   bool
	ended       string
	text, think strings.Builder
	split       thinkSplitter
	calls       []*callPieces
	argBytes    int  // of the calls, with their ids and names
	full        bool // nothing more is read
	usage       model.Usage
	model, id   string
}

// callPieces is a tool call that is still arriving.
type callPieces struct {
	index     int64
	id, name  string
	arguments []byte
	extra     json.RawMessage
}

func (a *answer) add(c chunk) model.Delta {
	a.chunks++
	if c.ID != "" {
		a.id = string(c.ID)
	}
	if c.Model != "" {
		a.model = string(c.Model)
	}
	// Some providers repeat a growing usage in each chunk: the last one counts.
	if c.Usage != nil {
		a.usage = c.Usage.usage()
	}
	var delta model.Delta
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		a.sawChoice = true
		text, thinking := a.split.Add(string(choice.Delta.Content))
		// A refusal is the model's own text, only in another field.
		delta.Text += text + string(choice.Delta.Refusal)
		delta.Reasoning += string(cmp.Or(choice.Delta.ReasoningContent, choice.Delta.Reasoning)) + thinking
		for i := range choice.Delta.ToolCalls {
			a.addCall(&choice.Delta.ToolCalls[i])
		}
		if choice.FinishReason != "" {
			a.ended = string(choice.FinishReason)
		}
	}
	a.take(delta)
	if a.firstToken == 0 && (delta != (model.Delta{}) || len(a.calls) > 0) {
		a.firstToken = max(time.Since(a.start), 1)
	}
	if len(a.calls) > wire.MaxToolCalls {
		a.calls, a.full = a.calls[:wire.MaxToolCalls], true
	}
	a.full = a.full || a.size() > wire.MaxAnswerBytes
	return delta
}

// size is what the answer holds so far, in bytes.
func (a *answer) size() int { return a.text.Len() + a.think.Len() + a.argBytes }

func (t *tokens) usage() model.Usage {
	return model.Usage{
		Input:       t.Prompt,
		Output:      t.Completion,
		CachedInput: cmp.Or(t.Details.Cached, t.CacheHit, t.Cached),
		CacheWrite:  t.Details.Write,
		Reasoning:   t.Thinking.Reasoning,
	}
}

func (a *answer) take(d model.Delta) {
	a.text.WriteString(d.Text)
	a.think.WriteString(d.Reasoning)
}

// rest is what was held back because it might have been a thinking tag.
func (a *answer) rest() model.Delta {
	text, thinking := a.split.End()
	d := model.Delta{Text: text, Reasoning: thinking}
	a.take(d)
	return d
}

// addCall finds the call a piece belongs to. The index says so, but there are
// servers that give each parallel call the same index: then another id, or a
// new name after complete arguments, begins a new call.
func (a *answer) addCall(piece *piece) {
	var call *callPieces
	for _, c := range a.calls { // the last one of this index
		if c.index == piece.Index {
			call = c
		}
	}
	id, name := string(piece.ID), string(piece.Function.Name)
	if call == nil ||
		(id != "" && call.id != "" && id != call.id) ||
		(id == "" && name != "" && call.name != "" && json.Valid(call.arguments)) {
		call = &callPieces{index: piece.Index}
		a.calls = append(a.calls, call)
	}
	if call.id == "" {
		call.id = id
		a.argBytes += len(call.id)
	}
	if call.name == "" {
		call.name = name
		a.argBytes += len(call.name)
	}
	if len(piece.Extra) > 0 {
		call.extra = piece.Extra
		a.argBytes += len(call.extra)
	}
	call.arguments = append(call.arguments, piece.Function.Arguments...)
	a.argBytes += len(piece.Function.Arguments)
}

// finish turns a stream that ended without an error into a response, or says
// why it is none.
func (a *answer) finish() (model.Response, error) {
	if a.full {
		a.ended = "length"
	}
	switch {
	case a.chunks == 0:
		return model.Response{}, model.Errorf(model.CutStream, "the stream ended before it began")
	case !a.sawChoice:
		return model.Response{}, model.Errorf(model.BadResponse, "the answer has no choices")
	case a.ended == "":
		return model.Response{}, model.Errorf(model.CutStream, "the stream ended without a finish reason")
	}
	var reason model.FinishReason
	switch a.ended {
	case "content_filter", "sensitive":
		return model.Response{}, model.Errorf(model.Policy, "the provider's content filter ended the answer")
	case "error", "network_error", "insufficient_system_resource", "abort", "aborted":
		return model.Response{}, model.Errorf(model.Unavailable, "the provider gave up in the middle of the answer (%s)", a.ended)
	case "length", "max_tokens":
		reason = model.FinishLength
	case "tool_calls", "function_call":
		if len(a.calls) == 0 {
			return model.Response{}, model.Errorf(model.BadResponse, "the answer announces tool calls and has none")
		}
		reason = model.FinishToolCalls
	default: // "stop" and the private words of some servers for it
		reason = model.FinishStop
	}
	calls := make([]model.ToolCall, 0, len(a.calls))
	for _, c := range a.calls {
		calls = append(calls, model.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments})
	}
	if len(calls) > 0 && reason == model.FinishStop {
		reason = model.FinishToolCalls
	}
	return model.Response{
		Text:         a.text.String(),
		Reasoning:    a.think.String(),
		Replay:       replayOf(a.calls),
		ToolCalls:    calls,
		Usage:        a.usage,
		FinishReason: reason,
		Model:        a.model,
		ProviderID:   a.id,
		FirstToken:   a.firstToken,
		Duration:     time.Since(a.start),
	}, nil
}
