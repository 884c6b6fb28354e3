package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

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
func (ids *callIDs) assistant(m model.Message, thinking bool) []sdk.ContentBlockParamUnion {
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
				out, calls = append(out, ids.call(calls[0])), calls[1:]
			}
		}
	}
	if text != "" {
		out = append(out, sdk.NewTextBlock(text))
	}
	for _, c := range calls {
		out = append(out, ids.call(c))
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

func (ids *callIDs) call(c model.ToolCall) sdk.ContentBlockParamUnion {
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	return sdk.NewToolUseBlock(ids.of(c.ID), arguments, c.Name)
}

// callIDs are the ids of the calls of one request as the API takes them: another provider
// may have given them. Different ids stay different, and an id that needs no change is
// kept.
type callIDs struct {
	sent  map[string]string // by id
	taken map[string]bool
}

// longestID bounds an id of a call, in bytes.
const longestID = 64

func newCallIDs(list []model.Message) *callIDs {
	ids := &callIDs{sent: map[string]string{}, taken: map[string]bool{}}
	for _, m := range list {
		for _, c := range m.ToolCalls {
			if safeID(c.ID) == c.ID { // these first, so that none of them is taken by a changed one
				ids.sent[c.ID], ids.taken[c.ID] = c.ID, true
			}
		}
	}
	return ids
}

func (ids *callIDs) of(id string) string {
	if sent, ok := ids.sent[id]; ok {
		return sent
	}
	sent := safeID(id)
	if sent != id {
		sum := sha256.Sum256([]byte(id))
		sent = sent[:min(len(sent), longestID-17)] + "_" + hex.EncodeToString(sum[:8])
	}
	for n := 2; ids.taken[sent]; n++ {
		sent = fmt.Sprintf("%s_%d", safeID(id)[:min(len(id), longestID-10)], n)
	}
	ids.sent[id], ids.taken[sent] = sent, true
	return sent
}

// safeID is an id in the characters and the length that the API takes.
func safeID(id string) string {
	out := []byte(id[:min(len(id), longestID)])
	for i, c := range out {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			out[i] = '_'
		}
	}
	return string(out)
}
