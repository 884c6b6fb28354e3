//go:build proof

package soak_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/theclaw/agents/internal/invariant"
)

// canary matches the texts that only one conversation, or one agent, may hold.
var canary = regexp.MustCompile(`canary-a\d+-[a-z]+\d*`)

func canaryOf(agent, who string) string { return "canary-" + agent + "-" + who }

// threadOf is the conversation of a person in the default routing mode.
func threadOf(who string) string { return "threads/peers/main-" + who }

// model is a provider on loopback that does as it is told and remembers which
// canaries each prompt held. Its n-th calls fail, with the key in the error, as
// some providers do.
type model struct {
	mu      sync.Mutex
	calls   int
	failed  int
	prompts map[invariant.Prompt]int
}

const failEach = 50

type chat struct {
	Model    string
	Messages []struct {
		Role    string
		Content any
	}
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	var c chat
	if json.NewDecoder(r.Body).Decode(&raw) != nil || json.Unmarshal(raw, &c) != nil || len(c.Messages) == 0 {
		http.Error(w, "not a chat", http.StatusBadRequest)
		return
	}
	last := len(c.Messages) - 1
	for last > 0 && c.Messages[last].Role != "user" {
		last--
	}
	text, _ := c.Messages[last].Content.(string)
	if m.fails(c, string(raw), text) {
		http.Error(w, `{"error":{"message":"too busy for `+r.Header.Get("Authorization")+`"}}`, http.StatusServiceUnavailable)
		return
	}
	delta, finish := map[string]any{"content": "done: " + text}, "stop"
	if command, ok := strings.CutPrefix(text, "run: "); ok && last == len(c.Messages)-1 {
		arguments, _ := json.Marshal(map[string]string{"command": command, "comment": "as asked"})
		finish, delta = "tool_calls", map[string]any{"tool_calls": []any{map[string]any{
			"index": 0, "id": "c1", "type": "function", "function": map[string]any{"name": "bash_exec", "arguments": string(arguments)},
		}}}
	}
	answer, _ := json.Marshal(map[string]any{"id": "1", "model": c.Model, "choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", answer)
}

// fails notes a prompt and tells whether this call fails. The agent is known by
// the model it asks for, who speaks by the last message's own canary.
func (m *model) fails(c chat, raw, text string) bool {
	p := invariant.Prompt{Agent: strings.TrimPrefix(c.Model, "m-")}
	if _, who, ok := strings.Cut(canary.FindString(text), p.Agent+"-"); ok {
		p.Peer, p.Thread = who, threadOf(who)
	}
	found := canary.FindAllString(raw, -1)
	slices.Sort(found)
	p.Text = strings.Join(slices.Compact(found), " ")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prompts[p]++
	m.calls++
	if m.calls%failEach != 0 {
		return false
	}
	m.failed++
	return true
}

func (m *model) seen() (prompts []invariant.Prompt, calls, failed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.prompts {
		prompts = append(prompts, p)
	}
	return prompts, m.calls, m.failed
}
