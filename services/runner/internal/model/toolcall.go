package model

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// SealToolCalls checks the calls of an answer and gives each an id that no
// other call of the conversation has. A provider's id is kept when it is good;
// a missing or repeated one becomes call_<messages>_<index>, which depends on
// the request and the position only, so a repeated answer has the same ids.
// A call without a name or with arguments that are no JSON object is a
// BadResponse: nothing of such an answer is run.
func SealToolCalls(req Request, calls []ToolCall) ([]ToolCall, error) {
	taken := make(map[string]bool)
	for _, m := range req.Messages {
		for _, c := range m.ToolCalls {
			taken[c.ID] = true
		}
	}
	sealed := make([]ToolCall, 0, len(calls))
	for i, c := range calls {
		if c.Name == "" {
			return nil, Errorf(BadResponse, "tool call %d has no name", i+1)
		}
		c.Arguments = bytes.TrimSpace(c.Arguments)
		if len(c.Arguments) == 0 {
			c.Arguments = json.RawMessage("{}")
		}
		if c.Arguments[0] != '{' || !json.Valid(c.Arguments) {
			return nil, Errorf(BadResponse, "the arguments of tool call %d (%.64s) are not a JSON object", i+1, c.Name)
		}
		if c.ID == "" || taken[c.ID] {
			c.ID = fmt.Sprintf("call_%d_%d", len(req.Messages), i)
			for n := 1; taken[c.ID]; n++ {
				c.ID = fmt.Sprintf("call_%d_%d_%d", len(req.Messages), i, n)
			}
		}
		taken[c.ID] = true
		sealed = append(sealed, c)
	}
	return sealed, nil
}
