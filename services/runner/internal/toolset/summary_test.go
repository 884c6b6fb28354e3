package toolset_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// S1-50, S2-50: the intent of a call has it in one line of at most 200 bytes, whatever its arguments are.
func TestSummary(t *testing.T) {
	exec := named("bash_exec")
	exec.spec.Summary = toolset.Summarize("command", "n")
	calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, exec, named("github__issues"))
	for _, c := range []struct{ name, args, want string }{
		{"bash_exec", `{"command":"git push"}`, "exec git push"},
		{"bash_exec", `{"command":"git\n\tpush\u001b[31m\u202e now","n":3}`, "exec git push [31m now 3"},
		{"bash_exec", `{"command":null}`, "exec"},
		{"bash_exec", `{"command":{"a":1}}`, `exec {"a":1}`},
		{"bash_exec", `[]`, "exec"},
		{"bash_exec", `{"command":"` + strings.Repeat("ü", 300) + `"}`, "exec " + strings.Repeat("ü", 96) + "…"},
		{"github__issues", `{"repo":"a/b"}`, `github__issues {"repo":"a/b"}`},
		{"github__issues", `{}`, "github__issues"},
		{"rm\x1b[2J-rf", `{}`, "rm [2j_rf"},
	} {
		row := calls.Intents(func(int) string { return "tool:1:1" }, []model.ToolCall{{Name: c.name, Arguments: json.RawMessage(c.args)}})[0]
		if got := row.GetSummary(); got != c.want || len(got) > toolset.MaxSummary || !utf8.ValidString(got) {
			t.Errorf("%s %s: %q, want %q", c.name, c.args, got, c.want)
		}
	}
}

// S2-51: the journal says of a result whether it is an error, and whether it is external: of a tool that says so, and
// of each tool of an MCP server, when the call was made.
func TestResultIsMarked(t *testing.T) {
	web, failed, server := named("web"), named("failed"), named("server__a")
	web.spec.External = true
	failed.result = toolset.Failed("no")
	server.spec.Server = "server"
	calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, named("plain"), web, failed, server)
	for name, want := range map[string][2]bool{
		"plain": {false, false}, "web": {false, true}, "failed": {true, false}, "server__a": {false, true}, "unknown": {true, false},
	} {
		key := "tool:1:" + name
		if _, err := toolsettest.Use(t.Context(), calls, key, model.ToolCall{Name: name, Arguments: json.RawMessage(`{}`)}, false); err != nil {
			t.Fatal(err)
		}
		if row := j.Tool(key); [2]bool{row.GetIsError(), row.GetExternal()} != want {
			t.Errorf("%s: error %v, external %v", name, row.GetIsError(), row.GetExternal())
		}
	}
	key := "tool:2:1" // with wrong arguments nothing is read
	if _, err := toolsettest.Use(t.Context(), calls, key, model.ToolCall{Name: "web", Arguments: json.RawMessage(`[]`)}, false); err != nil {
		t.Fatal(err)
	}
	if row := j.Tool(key); !row.GetIsError() || row.GetExternal() {
		t.Errorf("wrong arguments: error %v, external %v", row.GetIsError(), row.GetExternal())
	}
}
