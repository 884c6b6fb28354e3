package toolset_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// fixed is a tool with one answer.
type fixed struct {
	spec   toolset.Spec
	result toolset.Result
}

func (f fixed) Spec() toolset.Spec                               { return f.spec }
func (fixed) Class(toolset.Call) toolset.Class                   { return toolset.Read }
func (f fixed) Run(context.Context, toolset.Call) toolset.Result { return f.result }

func named(name string) fixed {
	return fixed{spec: toolset.Spec{Name: name, Description: "x", Schema: json.RawMessage(`{"type":"object"}`)}}
}

// S0-103: the tools of a turn are sorted, and a name outside of them runs nothing.
func TestSet(t *testing.T) {
	run, secret := named("run"), named("secret")
	run.spec.Needs = toolset.Program
	secret.spec.Offered = func(*registrypb.TurnConfig) bool { return false }
	calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, run, secret, named("ask"))
	var names []string
	for _, tool := range calls.Set.Offered() {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "ask run" {
		t.Errorf("offered: %s", got)
	}
	for n, name := range []string{"secret", "rm_rf", ""} {
		key := "tool:1:" + string(rune('1'+n))
		text, err := calls.Use(t.Context(), key, n+1, model.ToolCall{Name: name, Arguments: json.RawMessage(`{}`)}, true)
		if err != nil || text != `{"error":"there is no tool \"`+name+`\" here; to run a command there is run"}` {
			t.Errorf("%q: %s %v", name, text, err)
		}
		if class := j.Tool(key).GetClass(); class != registrypb.ToolClass_TOOL_CLASS_READ {
			t.Errorf("%q is of class %v", name, class)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	noSchema := named("a")
	noSchema.spec.Schema = json.RawMessage(`{`)
	for want, tools := range map[string][]toolset.Tool{
		"no name":     {named("")},
		"no JSON":     {noSchema},
		"two tools":   {named("a"), named("b"), named("a")},
		"description": {fixed{spec: toolset.Spec{Name: "a", Schema: json.RawMessage(`{}`)}}},
	} {
		if _, err := toolset.New(tools...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A result is valid JSON of a bounded size, whatever a tool answers.
func TestResults(t *testing.T) {
	long := strings.Repeat("\x01", 1<<20)
	output, err := json.Marshal(toolset.Output{Stdout: long})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		result toolset.Result
		want   string
	}{
		"text":        {toolset.Result{Text: "a <b>"}, `{"text":"a \u003cb\u003e"}`},
		"picture":     {toolset.Result{Text: "data:image/png;base64," + strings.Repeat("A", 100)}, `{"text":"[picture left out, 122 bytes]"}`},
		"object":      {toolset.Result{JSON: json.RawMessage(`{"a":1}`)}, `{"a":1}`},
		"failure":     {toolset.Failed("no <b>"), `{"error":"no \u003cb\u003e"}`},
		"no JSON":     {toolset.Result{JSON: json.RawMessage(`{`)}, `{"error":"the result is not understood, or larger than can be kept"}`},
		"long text":   {toolset.Result{Text: long}, `{"error":"the result is not understood, or larger than can be kept"}`},
		"long output": {toolset.Result{JSON: output}, `{"stdout":"`},
	} {
		t.Run(name, func(t *testing.T) {
			tool := named("a")
			tool.result = c.result
			calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, tool)
			if _, err := calls.Use(t.Context(), "tool:1:1", 1, model.ToolCall{Name: "a", Arguments: json.RawMessage(`{}`)}, false); err != nil {
				t.Fatal(err)
			}
			if got := j.Tool("tool:1:1").GetResult(); !strings.HasPrefix(string(got), c.want) || !json.Valid(got) || len(got) > toolset.MaxResult {
				t.Errorf("%d bytes: %.200s", len(got), got)
			}
		})
	}
}
