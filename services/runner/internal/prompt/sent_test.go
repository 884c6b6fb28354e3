package prompt_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/prompt"
)

// scopes are prompts that differ in what they are made of and in what has to go.
func scopes() map[string]prompt.Scope {
	out := map[string]prompt.Scope{}
	with := func(name string, change func(*prompt.Scope)) {
		s := scope()
		change(&s)
		out[name] = s
	}
	with("usual", func(*prompt.Scope) {})
	with("empty", func(s *prompt.Scope) { *s = prompt.Scope{} })
	with("no window", func(s *prompt.Scope) { s.ContextWindow = 0 })
	with("no files", func(s *prompt.Scope) { s.Files = nil })
	with("blank file", func(s *prompt.Scope) { s.Files[1].Content = " \n" })
	with("another file", func(s *prompt.Scope) {
		s.Files = append(slices.Insert(s.Files, 1, prompt.File{Name: "SOUL.md", Content: "kind"}), prompt.File{Name: "memory/notes.md", Content: "n"})
	})
	with("no tools", func(s *prompt.Scope) { s.Tools = nil })
	with("open", func(s *prompt.Scope) { s.Walled, s.Network = false, true })
	with("no workdir", func(s *prompt.Scope) { s.Workdir = "" })
	with("agents", func(s *prompt.Scope) {
		s.Agents = []prompt.Agent{{ID: "bob", Usage: "Asks\nand answers."}, {ID: "eve"}}
	})
	with("internal", func(s *prompt.Scope) {
		s.ReplyContext = `{"channel_type":"internal","peer_id":"bob","source_agent_id":"bob"}`
	})
	with("no peer", func(s *prompt.Scope) { s.ReplyContext = "" })
	with("no inbound", func(s *prompt.Scope) { s.Inbound = prompt.Event{} })
	with("no turn", func(s *prompt.Scope) { s.Turn = nil })
	with("digested", func(s *prompt.Scope) { s.Digested, s.Keep = 2, 10 })
	with("most", func(s *prompt.Scope) { s.Most = 8 })
	with("room", func(s *prompt.Scope) { s.MaxPrompt = 420 })
	with("long history", func(s *prompt.Scope) {
		for n := range 200 {
			s.Tail = append([]prompt.Event{{ID: int64(-n), Source: "self", Content: fmt.Sprintf("old %d %s", n, strings.Repeat("word ", 60))}}, s.Tail...)
		}
	})
	with("long results", func(s *prompt.Scope) {
		for n := range 6 {
			id := fmt.Sprint("d", n)
			s.Turn = append(s.Turn,
				model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: id, Name: "bash_exec", Arguments: json.RawMessage(`{}`)}}},
				model.Message{Role: model.RoleTool, ToolCallID: id, Text: strings.Repeat("output ", 1500)})
		}
	})
	with("long inbound", func(s *prompt.Scope) { s.Turn, s.Inbound.Content = nil, strings.Repeat("日本語 and more ", 10_000) })
	return out
}

// The bytes that a model is sent for a scope, by their hash: a change of them is a change
// of behavior, and costs every cached prefix.
func TestSentBytes(t *testing.T) {
	var lines []string
	all := scopes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := prompt.Standard().Build(all[name])
		data, err := json.Marshal([]any{p.System, p.Messages})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%-13s %x system %d messages %d, tokens %d of %d wanted %d, undigested %d turns %d upto %d dropped %d",
			name, sha256.Sum256(data), len(p.System), len(p.Messages), p.Tokens, p.Budget, p.Wanted, p.Undigested, p.Turns, p.Upto, p.Dropped))
		for _, part := range p.Parts() {
			lines = append(lines, fmt.Sprintf("%-13s   %s %s %d %v %x", name, part.Name, part.Role, part.Tokens, part.Cut, sha256.Sum256([]byte(part.Text))))
		}
	}
	golden(t, "sent", strings.Join(lines, "\n")+"\n")
}
