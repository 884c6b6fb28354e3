package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/status"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// away is a registry that does not answer. What it answers is tested over the real one, in
// services/runner.
type away struct{ grpc.ClientConnInterface }

func (away) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errors.New("away")
}

func tool() status.Tool {
	return status.Tool{Agents: registrypb.NewAgentServiceClient(away{}), Threads: registrypb.NewThreadServiceClient(away{})}
}

// It is a tool as others are.
func TestTool(t *testing.T) {
	toolsettest.Run(t, tool(), toolsettest.Cases{Good: []string{`{}`}, Bad: []string{`{"session":"x"}`, `[]`}})
}

// What is not known is left out, and so is what the registry does not answer.
func TestUnknown(t *testing.T) {
	for _, c := range []struct {
		name   string
		status *toolset.Status
		config *registrypb.TurnConfig
		want   map[string]string
	}{
		{"nothing", nil, &registrypb.TurnConfig{SandboxMode: "off"}, map[string]string{"sandbox": `"off"`}},
		{
			"no window, no price", &toolset.Status{Provider: "work", Model: "m/1", Messages: 2, Tokens: 10, Answers: 1, Input: 3, Output: 4, Unpriced: true},
			&registrypb.TurnConfig{SandboxMode: "required", Sandbox: &registrypb.Sandbox{Docker: &registrypb.DockerSandbox{}}},
			map[string]string{
				"model": `"work/m/1"`, "prompt": `{"messages":2,"estimated_tokens":10}`, "turn": `{"answers":1,"input_tokens":3,"output_tokens":4}`,
				"sandbox": `"docker"`,
			},
		},
		{
			"all", &toolset.Status{Session: "agent:a1:main", Epoch: "e1", Thinking: "off", Messages: 1, Tokens: 500, Window: 1000, Answers: 2, Input: 3, Output: 4, Cost: 0.5},
			&registrypb.TurnConfig{SandboxMode: "reduced"},
			map[string]string{
				"session": `"agent:a1:main"`, "epoch": `{"id":"e1"}`, "thinking": `"off"`,
				"prompt": `{"messages":1,"estimated_tokens":500,"context_window":1000,"percent_used":50}`,
				"turn":   `{"answers":2,"input_tokens":3,"output_tokens":4,"cost":0.5}`, "sandbox": `"on"`,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls, _ := toolsettest.Calls(t, c.config, tool())
			if c.status != nil {
				calls.Place.Status = func() toolset.Status { return *c.status }
			}
			text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: status.Name, Arguments: json.RawMessage(`{}`)}, false)
			var got map[string]json.RawMessage
			if err != nil || json.Unmarshal([]byte(text), &got) != nil {
				t.Fatal(text, err)
			}
			if len(got["time"]) == 0 {
				t.Errorf("no time in %s", text)
			}
			delete(got, "time")
			c.want["agent"], c.want["waiting_messages"] = `"a1"`, `0`
			for key, want := range c.want {
				if string(got[key]) != want {
					t.Errorf("%s is %s, want %s", key, got[key], want)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("got %s, want %v", text, c.want)
			}
		})
	}
}
