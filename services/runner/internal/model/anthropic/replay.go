package anthropic

import (
	"encoding/json"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// The content blocks we know, as the API names them.
const (
	kindText     = "text"
	kindThinking = "thinking"
	kindRedacted = "redacted_thinking"
	kindCall     = "tool_use"
)

// replay is what model.Message.Replay holds: the order of the blocks, and of
// thinking, which stands nowhere else unchanged, everything. Text and calls are
// those of the message.
type replay struct {
	API    string        `json:"api"`
	Blocks []replayBlock `json:"blocks"`
}

type replayBlock struct {
	Kind string `json:"kind"`
	// Text of a thinking block, or the data of a redacted one.
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
	// Length of a text block in bytes.
	Length int `json:"length,omitempty"`
}

const replayAPI = "anthropic"

// replayOf is empty for an answer without thinking: such a message goes back
// as its text and its calls.
func replayOf(blocks []*block) json.RawMessage {
	r := replay{API: replayAPI}
	thought := false
	for _, b := range blocks {
		switch b.kind {
		case kindThinking, kindRedacted:
			thought = true
			r.Blocks = append(r.Blocks, replayBlock{Kind: b.kind, Text: b.text.String(), Signature: b.signature})
		case kindText:
			r.Blocks = append(r.Blocks, replayBlock{Kind: b.kind, Length: b.text.Len()})
		case kindCall:
			r.Blocks = append(r.Blocks, replayBlock{Kind: b.kind})
		}
	}
	if !thought {
		return nil
	}
	out, err := json.Marshal(r)
	if err != nil { // strings and numbers
		return nil
	}
	return out
}

// thoughts reads the replay of a message of ours; false when it has none.
func thoughts(m model.Message) (replay, bool) {
	var r replay
	ok := len(m.Replay) > 0 && json.Unmarshal(m.Replay, &r) == nil && r.API == replayAPI
	return r, ok
}

// assistant is a message of the model as it goes back. Without thinking, also
// when the request does not ask for it, it is its text and its calls; a text
// that was cut since stands in one piece behind the thinking.
func assistant(m model.Message, thinking bool) []sdk.ContentBlockParamUnion {
	var out []sdk.ContentBlockParamUnion
	text, calls := m.Text, m.ToolCalls
	if r, ok := thoughts(m); ok && thinking {
		whole := r.length() == len(m.Text)
		for _, b := range r.Blocks {
			switch {
			case b.Kind == kindThinking:
				out = append(out, sdk.NewThinkingBlock(b.Signature, b.Text))
			case b.Kind == kindRedacted:
				out = append(out, sdk.NewRedactedThinkingBlock(b.Text))
			case b.Kind == kindText && whole && b.Length > 0:
				out = append(out, sdk.NewTextBlock(text[:b.Length]))
				text = text[b.Length:]
			case b.Kind == kindCall && whole && len(calls) > 0:
				out, calls = append(out, call(calls[0])), calls[1:]
			}
		}
	}
	if text != "" {
		out = append(out, sdk.NewTextBlock(text))
	}
	for _, c := range calls {
		out = append(out, call(c))
	}
	return out
}

// length of all text; -1 for figures that cannot be ours.
func (r replay) length() int {
	n := 0
	for _, b := range r.Blocks {
		if b.Length < 0 {
			return -1
		}
		n += b.Length
	}
	return n
}

func call(c model.ToolCall) sdk.ContentBlockParamUnion {
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	return sdk.NewToolUseBlock(callID(c.ID), arguments, c.Name)
}

// callID is an id the API takes: another provider may have given it.
func callID(id string) string {
	out := []byte(id)
	for i, c := range out {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			out[i] = '_'
		}
	}
	return string(out)
}
