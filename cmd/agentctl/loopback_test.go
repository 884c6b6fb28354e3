package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// loopback is a model of the test: it does what the last message of the user
// says, with pauses that the test ends.
type loopback struct {
	*httptest.Server
	goOn  chan struct{} // lets a reply that was begun go on
	ended chan struct{} // told when a caller gave up
}

func newLoopback(t *testing.T) *loopback {
	p := &loopback{goOn: make(chan struct{}), ended: make(chan struct{}, 8)}
	p.Server = httptest.NewServer(http.HandlerFunc(p.answer))
	t.Cleanup(p.Server.CloseClientConnections)
	t.Cleanup(p.Server.Close)
	return p
}

// env is what makes agentd use it.
func (p *loopback) env() []string {
	return []string{"OPENAI_BASE_URL=" + p.URL + "/v1", "OPENAI_API_KEY=sk-test", "OPENAI_MODEL=scripted"}
}

func (p *loopback) answer(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Messages []struct {
			Role    string
			Content string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	last := in.Messages[len(in.Messages)-1]
	w.Header().Set("Content-Type", "text/event-stream")
	delta := func(v map[string]any) {
		chunk := map[string]any{
			"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
			"choices": []any{map[string]any{"index": 0, "delta": v}},
		}
		b, _ := json.Marshal(chunk)
		fmt.Fprintf(w, "data: %s\n\n", b)
		w.(http.Flusher).Flush()
	}
	reason := "stop"
	switch text := last.Content; {
	case last.Role == "tool":
		delta(map[string]any{"content": "The tool has said it."})
	case strings.Contains(text, "stream"):
		delta(map[string]any{"content": "## Title\nsome **bold** beginning"})
		select {
		case <-p.goOn:
		case <-r.Context().Done():
			return
		}
		delta(map[string]any{"content": ", and\n- the end\n"})
	case strings.Contains(text, "tool"):
		delta(map[string]any{"reasoning_content": "a tool is needed here"})
		reason = "tool_calls"
		delta(map[string]any{"tool_calls": []any{map[string]any{
			"index": 0, "id": "call_1", "type": "function",
			"function": map[string]any{"name": "bash_exec", "arguments": `{"command":"echo from-the-tool","comment":"to see"}`},
		}}})
	case strings.Contains(text, "hang"):
		delta(map[string]any{"content": "this never ends"})
		<-r.Context().Done()
		p.ended <- struct{}{}
		return
	default:
		delta(map[string]any{"content": "heard: " + text[strings.LastIndex(text, "\n")+1:]})
	}
	fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"scripted\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n", reason)
	fmt.Fprint(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"scripted\",\"choices\":[],\"usage\":{\"prompt_tokens\":21,\"completion_tokens\":7,\"total_tokens\":28}}\n\ndata: [DONE]\n\n")
}
