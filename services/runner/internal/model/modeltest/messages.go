package modeltest

import "fmt"

// messages is the wire format of Anthropic's Messages API.
type messages struct {
	model, id string
	step      Step
	// blocks counts those that have begun; open is the kind of the one that is
	// going on.
	blocks int
	open   string
}

func newMessages(model string, number int, s Step) api {
	return &messages{model: model, id: fmt.Sprintf("msg_%d", number), step: s}
}

// usage as the API reports it: what was read from and into the cache stands
// beside the input, not in it. Without a script there is none.
func (m *messages) usage(output int64) map[string]any {
	u := m.step.Usage
	if u == nil {
		return map[string]any{}
	}
	return map[string]any{
		"input_tokens": u.Input - u.Cached - u.CacheWrite, "cache_read_input_tokens": u.Cached,
		"cache_creation_input_tokens": u.CacheWrite, "output_tokens": output,
	}
}

func (m *messages) begin() []event {
	if m.step.NoChoices { // an answer of another kind
		return nil
	}
	return []event{{"message_start", map[string]any{"type": "message_start", "message": map[string]any{
		"id": m.id, "type": "message", "role": "assistant", "model": m.model, "content": []any{}, "stop_reason": nil, "usage": m.usage(1),
	}}}}
}

// block opens a block of a kind, unless one is going on.
func (m *messages) block(kind string, start map[string]any) []event {
	if m.open == kind {
		return nil
	}
	out := m.stop()
	m.open = kind
	m.blocks++
	start["type"] = kind
	return append(out, event{"content_block_start", map[string]any{"type": "content_block_start", "index": m.blocks - 1, "content_block": start}})
}

func (m *messages) stop() []event {
	if m.open == "" {
		return nil
	}
	var out []event
	if m.open == "thinking" {
		out = append(out, m.delta(m.blocks-1, map[string]any{"type": "signature_delta", "signature": Signature}))
	}
	m.open = ""
	return append(out, event{"content_block_stop", map[string]any{"type": "content_block_stop", "index": m.blocks - 1}})
}

func (*messages) delta(index int, d map[string]any) event {
	return event{"content_block_delta", map[string]any{"type": "content_block_delta", "index": index, "delta": d}}
}

func (m *messages) reasoning(piece string) []event {
	out := m.block("thinking", map[string]any{"thinking": "", "signature": ""})
	return append(out, m.delta(m.blocks-1, map[string]any{"type": "thinking_delta", "thinking": piece}))
}

func (m *messages) text(piece string) []event {
	if m.step.NoChoices {
		return []event{{"hello", map[string]any{"type": "hello"}}}
	}
	out := m.block("text", map[string]any{"text": ""})
	return append(out, m.delta(m.blocks-1, map[string]any{"type": "text_delta", "text": piece}))
}

func (m *messages) calls() []event {
	if len(m.step.ToolCalls) == 0 {
		return nil
	}
	out, first := m.stop(), m.blocks
	for _, p := range pieces(m.step.ToolCalls) {
		index := first + p.index
		if p.first {
			m.blocks++
			out = append(out, event{"content_block_start", map[string]any{"type": "content_block_start", "index": index, "content_block": map[string]any{
				"type": "tool_use", "id": p.call.ID, "name": p.call.Name, "input": map[string]any{},
			}}})
		}
		if p.said {
			out = append(out, m.delta(index, map[string]any{"type": "input_json_delta", "partial_json": p.arguments}))
		}
	}
	for i := range m.step.ToolCalls {
		out = append(out, event{"content_block_stop", map[string]any{"type": "content_block_stop", "index": first + i}})
	}
	return out
}

func (*messages) failure(e APIError) []event {
	return []event{{"error", map[string]any{"type": "error", "error": e}}}
}

var stopReasons = map[string]string{
	"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal",
}

func (m *messages) finish(reason string) []event {
	if m.step.NoChoices {
		return nil
	}
	out := m.stop()
	if word := stopReasons[reason]; word != "" {
		reason = word
	}
	usage := m.usage(0)
	if u := m.step.Usage; u != nil {
		usage["output_tokens"], usage["output_tokens_details"] = u.Output, map[string]any{"thinking_tokens": u.Reasoning}
	}
	return append(out, event{"message_delta", map[string]any{
		"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": nil}, "usage": usage,
	}})
}

func (*messages) end() []event {
	return []event{{"message_stop", map[string]any{"type": "message_stop"}}}
}
