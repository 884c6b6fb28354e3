package provider

import (
	"testing"

	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// What is not set is left to the runner, and YAML's ways to write a word are one word.
func TestChosenOf(t *testing.T) {
	for _, c := range []struct{ value, origin, want string }{
		{"openai", "default", ""},
		{"work\n", "config.yaml:6", "work"},
		{`"work"`, "theclaw.yaml:3", "work"},
		{"'work'", "config.yaml:6", "work"},
		{"null", "config.yaml:6", ""},
		{"~", "config.yaml:6", ""},
		{`""`, "config.yaml:6", ""},
	} {
		provider, model := ChosenOf(&registry.GetAgentConfigResponse{Values: []*registry.ConfigValue{
			{Key: "pai.provider", Value: c.value, Origin: c.origin}, {Key: "pai.model", Value: c.value, Origin: c.origin}, {Key: "kind", Value: "user", Origin: "config.yaml:1"},
		}})
		if provider != c.want || model != c.want {
			t.Errorf("%+v: %q, %q", c, provider, model)
		}
	}
}
