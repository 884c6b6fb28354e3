package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// play answers one request as the step says. A broken connection is made with
// http.ErrAbortHandler, the way net/http offers.
func play(w http.ResponseWriter, r *http.Request, s Step, model, id string) {
	if s.HangUp {
		panic(http.ErrAbortHandler)
	}
	for k, v := range s.Header {
		w.Header().Set(k, v)
	}
	if s.RetryAfter != "" {
		w.Header().Set("Retry-After", s.RetryAfter)
	}
	stream := s.Status == 0 || s.Status == http.StatusOK
	if !stream || s.Body != "" {
		whole(w, s)
		return
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.WriteHeader(http.StatusOK)
	out := sse{w: w, r: r, flush: http.NewResponseController(w), step: s, model: model, id: id}
	if out.flush.Flush() != nil || !out.run() || s.Cut {
		panic(http.ErrAbortHandler)
	}
}

func whole(w http.ResponseWriter, s Step) {
	body := s.Body
	if body == "" && s.Error != nil {
		b, err := json.Marshal(map[string]any{"error": s.Error})
		if err != nil {
			panic(fmt.Sprintf("modeltest: the script's error does not encode: %v", err))
		}
		body = string(b)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(max(s.Status, http.StatusOK))
	_, _ = w.Write([]byte(body)) // a client that left needs no answer
}

// sse writes one stream; once a write fails or the client has gone, it is dead.
type sse struct {
	w         http.ResponseWriter
	r         *http.Request
	flush     *http.ResponseController
	step      Step
	model, id string
	sent      int
}

// run writes the whole script and reports whether the client is still there.
func (o *sse) run() bool {
	s := o.step
	if len(s.Reasoning)+len(s.Text)+len(s.ToolCalls) == 0 && !o.wait() {
		return false
	}
	for _, piece := range s.Reasoning {
		if !o.piece(map[string]any{"reasoning_content": piece}) {
			return false
		}
	}
	for _, piece := range s.Text {
		if !o.piece(map[string]any{"content": piece}) {
			return false
		}
	}
	for _, piece := range pieces(s.ToolCalls) {
		if !o.piece(map[string]any{"tool_calls": []any{piece}}) {
			return false
		}
	}
	for _, line := range s.Raw {
		if !o.write(line + "\n") {
			return false
		}
	}
	if s.Cut {
		return true
	}
	if s.Error != nil && !o.data(map[string]any{"error": s.Error}) {
		return false
	}
	finish := s.Finish
	if finish == "" {
		finish = "stop"
		if len(s.ToolCalls) > 0 {
			finish = "tool_calls"
		}
	}
	if finish != FinishNone && !o.chunk(map[string]any{}, finish) {
		return false
	}
	if u := s.Usage; u != nil && !o.data(map[string]any{
		"id": o.id, "object": "chat.completion.chunk", "model": o.model, "choices": []any{},
		"usage": map[string]any{
			"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
			"prompt_tokens_details":     map[string]any{"cached_tokens": u.Cached},
			"completion_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
		},
	}) {
		return false
	}
	return s.NoDone || o.write("data: [DONE]\n\n")
}

// pieces cuts tool calls into stream pieces, one of each call in turn.
func pieces(calls []ToolCall) []map[string]any {
	var out []map[string]any
	for round, more := 0, true; more; round++ {
		more = false
		for i, c := range calls {
			if round >= max(len(c.Arguments), 1) {
				continue
			}
			more = true
			index := i
			if c.Index != nil {
				index = *c.Index
			}
			function := map[string]any{}
			piece := map[string]any{"index": index, "function": function}
			if round == 0 {
				piece["type"], function["name"] = "function", c.Name
				if c.ID != "" {
					piece["id"] = c.ID
				}
			}
			if round < len(c.Arguments) {
				function["arguments"] = c.Arguments[round]
			}
			out = append(out, piece)
		}
	}
	return out
}

// piece sends one delta, then holds the stream where the script says so.
func (o *sse) piece(delta map[string]any) bool {
	if !o.chunk(delta, nil) {
		return false
	}
	o.sent++
	if o.sent == 1 && !o.wait() {
		return false
	}
	if o.step.PauseMS == 0 {
		return true
	}
	select {
	case <-time.After(time.Duration(o.step.PauseMS) * time.Millisecond):
		return true
	case <-o.r.Context().Done():
		return false
	}
}

func (o *sse) wait() bool {
	if o.step.Gate == nil {
		return true
	}
	select {
	case <-o.step.Gate:
		return true
	case <-o.r.Context().Done():
		return false
	}
}

func (o *sse) chunk(delta map[string]any, finish any) bool {
	choices := []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}
	if o.step.NoChoices {
		choices = []any{}
	}
	return o.data(map[string]any{
		"id": o.id, "object": "chat.completion.chunk", "created": 0, "model": o.model, "choices": choices,
	})
}

func (o *sse) data(v any) bool {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("modeltest: the script does not encode: %v", err))
	}
	return o.write("data: " + string(b) + "\n\n")
}

func (o *sse) write(s string) bool {
	if _, err := o.w.Write([]byte(s)); err != nil {
		return false
	}
	return o.flush.Flush() == nil
}
