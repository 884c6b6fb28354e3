package session_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/session"
)

// S0-101, S0-102, S0-111: golden file; written as a whole, mode 0600.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	id := "threads/peers/tui-main-alice"
	if err := session.Write(dir, id, "old", []model.Message{{Role: model.RoleUser, Text: "old and longer than the new one"}}); err != nil {
		t.Fatal(err)
	}
	messages := []model.Message{
		{Role: model.RoleUser, Text: "<hi>"},
		{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: json.RawMessage(`{"command":"ls"}`)}}},
		{Role: model.RoleTool, ToolCallID: "c1", Name: "bash_exec", Text: `{"stdout":"x"}`},
	}
	if err := session.Write(dir, id, "sys", messages); err != nil {
		t.Fatal(err)
	}
	const want = `{"role":"system","content":"sys"}
{"role":"user","content":"<hi>"}
{"role":"assistant","content":"","tool_calls":[{"id":"c1","name":"bash_exec","arguments":{"command":"ls"}}]}
{"role":"tool","content":"{\"stdout\":\"x\"}","tool_call_id":"c1","name":"bash_exec"}
`
	path := filepath.Join(dir, "threads%2Fpeers%2Ftui-main-alice.jsonl")
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%v %v", files, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
}

func TestCannotWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := session.Write(file, "threads/main", "", nil); err == nil {
		t.Error("a file was taken for a directory")
	}
}
