package openai

import (
	"encoding/json"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// replay is what model.Message.Replay holds for an answer with tool calls that
// came with a field we do not understand and that goes back as it came: Gemini
// signs its thinking there and refuses the next round without it.
type replay struct {
	API string `json:"api"`
	// Calls holds the extra_content of each call; null for those without.
	Calls []json.RawMessage `json:"calls"`
}

const (
	replayAPI    = "openai"
	extraContent = "extra_content"
)

// replayOf is empty when no call has anything to go back.
func replayOf(calls []*callPieces) json.RawMessage {
	r, any := replay{API: replayAPI}, false
	for _, c := range calls {
		any = any || c.extra != nil
		r.Calls = append(r.Calls, c.extra)
	}
	if !any {
		return nil
	}
	out, err := json.Marshal(r)
	if err != nil { // what was cut off in the middle did not decode before
		return nil
	}
	return out
}

// extras returns the extra_content of the calls of a message of ours.
func extras(m model.Message) []json.RawMessage {
	var r replay
	if len(m.Replay) == 0 || json.Unmarshal(m.Replay, &r) != nil || r.API != replayAPI || len(r.Calls) != len(m.ToolCalls) {
		return make([]json.RawMessage, len(m.ToolCalls))
	}
	return r.Calls
}
