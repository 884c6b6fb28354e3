package anthropic

import (
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/wire"
)

// answer puts the events of one stream together.
//
//	begin --message_start--> open --message_delta with a stop reason--> ended
//	ended --message_stop, or a clean end of the body--> complete
//	open --larger than an answer may be--> full, which is an answer that is truncated
//	any other way for the stream to end is an error
type answer struct {
	start      time.Time
	firstToken time.Duration
	events     int
	ended      string
	stopped    bool // message_stop was seen
	full       bool // nothing more is read
	blocks     []*block
	size       int
	calls      int
	usage      model.Usage
	model, id  string
}

// block is a content block that is still arriving.
type block struct {
	index     int64
	kind      string // as the API names it
	text      strings.Builder
	signature string // of thinking
	id, name  string // of a call
}

func (a *answer) add(e sdk.MessageStreamEventUnion) (model.Delta, error) {
	a.events++
	var delta model.Delta
	switch e.Type {
	case "message_start":
		a.id, a.model = e.Message.ID, e.Message.Model
		u := e.Message.Usage
		a.count(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens, u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
	case "content_block_start":
		delta = a.begin(e.Index, e.ContentBlock)
	case "content_block_delta":
		b := a.find(e.Index)
		if b == nil {
			return delta, model.Errorf(model.BadResponse, "the answer goes on with a block that did not begin")
		}
		delta = b.add(e.Delta)
		a.size += len(e.Delta.Text) + len(e.Delta.Thinking) + len(e.Delta.PartialJSON) + len(e.Delta.Signature)
	case "message_delta":
		if e.Delta.StopReason != "" {
			a.ended = string(e.Delta.StopReason)
		}
		a.update(e.Usage)
	case "message_stop":
		a.stopped = true
	case "":
		return delta, model.Errorf(model.BadResponse, "the stream holds something that is not an event")
	}
	if a.firstToken == 0 && (delta != (model.Delta{}) || a.calls > 0) {
		a.firstToken = max(time.Since(a.start), 1)
	}
	if a.calls > wire.MaxToolCalls { // the block that has just begun is one too many
		a.blocks, a.calls, a.full = a.blocks[:len(a.blocks)-1], wire.MaxToolCalls, true
	}
	a.full = a.full || a.size > wire.MaxAnswerBytes || len(a.blocks) > 4*wire.MaxToolCalls
	return delta, nil
}

func (a *answer) count(input, read, written, output, thought int64) {
	a.usage = model.Usage{Input: input + read + written, CachedInput: read, CacheWrite: written, Output: output, Reasoning: thought}
}

// update takes the figures of a message_delta: they are totals, and those that
// are left out stay as they were.
func (a *answer) update(u sdk.MessageDeltaUsage) {
	old := a.usage
	input, read, written := old.Input-old.CachedInput-old.CacheWrite, old.CachedInput, old.CacheWrite
	output, thought := old.Output, old.Reasoning
	for _, f := range []struct {
		said  bool
		value int64
		into  *int64
	}{
		{u.JSON.InputTokens.Valid(), u.InputTokens, &input},
		{u.JSON.CacheReadInputTokens.Valid(), u.CacheReadInputTokens, &read},
		{u.JSON.CacheCreationInputTokens.Valid(), u.CacheCreationInputTokens, &written},
		{u.JSON.OutputTokens.Valid(), u.OutputTokens, &output},
		{u.OutputTokensDetails.JSON.ThinkingTokens.Valid(), u.OutputTokensDetails.ThinkingTokens, &thought},
	} {
		if f.said {
			*f.into = f.value
		}
	}
	a.count(input, read, written, output, thought)
}

func (a *answer) begin(index int64, c sdk.ContentBlockStartEventContentBlockUnion) model.Delta {
	b := &block{index: index, kind: c.Type, signature: c.Signature, id: c.ID, name: c.Name}
	a.blocks = append(a.blocks, b)
	var delta model.Delta
	switch c.Type {
	case kindText:
		delta.Text = c.Text
		b.text.WriteString(c.Text)
	case kindThinking:
		delta.Reasoning = c.Thinking
		b.text.WriteString(c.Thinking)
	case kindRedacted:
		b.text.WriteString(c.Data)
	case kindCall:
		a.calls++
	}
	a.size += b.text.Len() + len(b.signature) + len(b.id) + len(b.name)
	return delta
}

// find is the newest block of an index.
func (a *answer) find(index int64) *block {
	for i := len(a.blocks) - 1; i >= 0; i-- {
		if a.blocks[i].index == index {
			return a.blocks[i]
		}
	}
	return nil
}

func (b *block) add(d sdk.MessageStreamEventUnionDelta) model.Delta {
	switch {
	case d.Type == "text_delta" && b.kind == kindText:
		b.text.WriteString(d.Text)
		return model.Delta{Text: d.Text}
	case d.Type == "thinking_delta" && b.kind == kindThinking:
		b.text.WriteString(d.Thinking)
		return model.Delta{Reasoning: d.Thinking}
	case d.Type == "signature_delta":
		b.signature += d.Signature
	case d.Type == "input_json_delta" && b.kind == kindCall:
		b.text.WriteString(d.PartialJSON)
	}
	return model.Delta{}
}

// finish turns a stream that ended without an error into a response, or says
// why it is none.
func (a *answer) finish() (model.Response, error) {
	var reason model.FinishReason
	if a.full {
		a.ended = "max_tokens"
	}
	switch {
	case a.events == 0:
		return model.Response{}, model.Errorf(model.CutStream, "the stream ended before it began")
	case a.ended == "" && a.id == "" && len(a.blocks) == 0:
		return model.Response{}, model.Errorf(model.BadResponse, "the answer holds no message")
	case a.ended == "":
		return model.Response{}, model.Errorf(model.CutStream, "the stream ended without a stop reason")
	case a.ended == "refusal":
		return model.Response{}, model.Errorf(model.Policy, "the model refused for reasons of its provider's policy")
	case a.ended == "max_tokens", a.ended == "model_context_window_exceeded":
		reason = model.FinishLength
	case a.ended == "tool_use" && a.calls == 0:
		return model.Response{}, model.Errorf(model.BadResponse, "the answer announces tool calls and has none")
	case a.calls > 0:
		reason = model.FinishToolCalls
	default:
		reason = model.FinishStop
	}
	var text, think strings.Builder
	calls := make([]model.ToolCall, 0, a.calls)
	for _, b := range a.blocks {
		switch b.kind {
		case kindText:
			text.WriteString(b.text.String())
		case kindThinking:
			think.WriteString(b.text.String())
		case kindCall:
			calls = append(calls, model.ToolCall{ID: b.id, Name: b.name, Arguments: []byte(b.text.String())})
		}
	}
	return model.Response{
		Text:         text.String(),
		Reasoning:    think.String(),
		Replay:       replayOf(a.blocks),
		ToolCalls:    calls,
		Usage:        a.usage,
		FinishReason: reason,
		Model:        a.model,
		ProviderID:   a.id,
		FirstToken:   a.firstToken,
		Duration:     time.Since(a.start),
	}, nil
}
