package openai

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/openai/openai-go/v3"

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

func (a *answer) add(c sdk.ChatCompletionChunk) model.Delta {
	a.chunks++
	if c.ID != "" {
		a.id = c.ID
	}
	if c.Model != "" {
		a.model = c.Model
	}
	// Some providers repeat a growing usage in each chunk: the last one counts.
	if c.JSON.Usage.Valid() {
		a.usage = usage(c.Usage)
	}
	var delta model.Delta
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		a.sawChoice = true
		text, thinking := a.split.Add(choice.Delta.Content)
		// A refusal is the model's own text, only in another field.
		delta.Text += text + choice.Delta.Refusal
		delta.Reasoning += reasoning(choice.Delta) + thinking
		for _, piece := range choice.Delta.ToolCalls {
			a.addCall(piece)
		}
		if choice.FinishReason != "" {
			a.ended = choice.FinishReason
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

// usage reads the tokens; what came from the cache is next to OpenAI's own
// field at DeepSeek and Moonshot.
func usage(u sdk.CompletionUsage) model.Usage {
	cached := u.PromptTokensDetails.CachedTokens
	for _, name := range []string{"prompt_cache_hit_tokens", "cached_tokens"} {
		if f, ok := u.JSON.ExtraFields[name]; ok && cached == 0 {
			_ = json.Unmarshal([]byte(f.Raw()), &cached) // of another type: not reported
		}
	}
	return model.Usage{
		Input:       u.PromptTokens,
		Output:      u.CompletionTokens,
		CachedInput: cached,
		CacheWrite:  u.PromptTokensDetails.CacheWriteTokens,
		Reasoning:   u.CompletionTokensDetails.ReasoningTokens,
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

// reasoning reads the thinking text, which has no place in OpenAI's own format:
// DeepSeek and Moonshot call it reasoning_content, OpenRouter and Ollama
// reasoning.
func reasoning(d sdk.ChatCompletionChunkChoiceDelta) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if f, ok := d.JSON.ExtraFields[name]; ok {
			if text := unquote(f.Raw()); text != "" {
				return text
			}
		}
	}
	return ""
}

// unquote decodes a JSON string and keeps its bytes that are not UTF-8, which may be a part
// of a character that the next chunk completes. Anything else is empty.
func unquote(raw string) string {
	const private = 0x100000 // a plane for private use: such bytes are characters of it meanwhile
	var text string
	if utf8.ValidString(raw) {
		_ = json.Unmarshal([]byte(raw), &text) // not a string: not reported
		return text
	}
	var b strings.Builder
	for i := range len(raw) {
		if c := raw[i]; c < utf8.RuneSelf {
			b.WriteByte(c)
		} else {
			b.WriteRune(private + rune(c))
		}
	}
	if json.Unmarshal([]byte(b.String()), &text) != nil {
		return ""
	}
	b.Reset()
	for _, r := range text {
		if r >= private+utf8.RuneSelf && r <= private+0xff {
			b.WriteByte(byte(r - private))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// addCall finds the call a piece belongs to. The index says so, but there are
// servers that give each parallel call the same index: then another id, or a
// new name after complete arguments, begins a new call.
func (a *answer) addCall(piece sdk.ChatCompletionChunkChoiceDeltaToolCall) {
	var call *callPieces
	for _, c := range a.calls { // the last one of this index
		if c.index == piece.Index {
			call = c
		}
	}
	name := piece.Function.Name
	if call == nil ||
		(piece.ID != "" && call.id != "" && piece.ID != call.id) ||
		(piece.ID == "" && name != "" && call.name != "" && json.Valid(call.arguments)) {
		call = &callPieces{index: piece.Index}
		a.calls = append(a.calls, call)
	}
	if call.id == "" {
		call.id = piece.ID
		a.argBytes += len(call.id)
	}
	if call.name == "" {
		call.name = name
		a.argBytes += len(call.name)
	}
	if f, ok := piece.JSON.ExtraFields[extraContent]; ok && json.Valid([]byte(f.Raw())) {
		call.extra = json.RawMessage(f.Raw())
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
