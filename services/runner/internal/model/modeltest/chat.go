package modeltest

import "fmt"

// chat is the wire format of OpenAI's chat completions.
type chat struct {
	model, id string
	step      Step
}

func newChat(model string, number int, s Step) api {
	return &chat{model, fmt.Sprintf("chatcmpl-%d", number), s}
}

func (*chat) begin() []event { return nil }

func (c *chat) reasoning(piece string) []event {
	return c.chunk(map[string]any{"reasoning_content": piece}, nil)
}

func (c *chat) text(piece string) []event { return c.chunk(map[string]any{"content": piece}, nil) }

func (c *chat) calls() []event {
	var out []event
	for _, p := range pieces(c.step.ToolCalls) {
		function := map[string]any{}
		call := map[string]any{"index": p.index, "function": function}
		if p.first {
			call["type"], function["name"] = "function", p.call.Name
			if p.call.ID != "" {
				call["id"] = p.call.ID
			}
		}
		if p.said {
			function["arguments"] = p.arguments
		}
		out = append(out, c.chunk(map[string]any{"tool_calls": []any{call}}, nil)...)
	}
	return out
}

func (*chat) failure(e APIError) []event { return []event{{"", map[string]any{"error": e}}} }

func (c *chat) finish(reason string) []event {
	out := c.chunk(map[string]any{}, reason)
	u := c.step.Usage
	if u == nil {
		return out
	}
	return append(out, event{"", map[string]any{
		"id": c.id, "object": "chat.completion.chunk", "model": c.model, "choices": []any{},
		"usage": map[string]any{
			"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
			"prompt_tokens_details":     map[string]any{"cached_tokens": u.Cached, "cache_write_tokens": u.CacheWrite},
			"completion_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
		},
	}})
}

func (*chat) end() []event { return []event{{"", "[DONE]"}} }

func (c *chat) chunk(delta map[string]any, finish any) []event {
	choices := []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}
	if c.step.NoChoices {
		choices = []any{}
	}
	return []event{{"", map[string]any{
		"id": c.id, "object": "chat.completion.chunk", "created": 0, "model": c.model, "choices": choices,
	}}}
}

// callPiece is a part of a tool call as it is streamed.
type callPiece struct {
	index       int
	call        ToolCall
	first, said bool
	arguments   string
}

// pieces cuts tool calls into stream pieces, one of each call in turn.
func pieces(calls []ToolCall) []callPiece {
	var out []callPiece
	for round, more := 0, true; more; round++ {
		more = false
		for i, c := range calls {
			if round >= max(len(c.Arguments), 1) {
				continue
			}
			more = true
			p := callPiece{index: i, call: c, first: round == 0, said: round < len(c.Arguments)}
			if c.Index != nil {
				p.index = *c.Index
			}
			if p.said {
				p.arguments = c.Arguments[round]
			}
			out = append(out, p)
		}
	}
	return out
}
