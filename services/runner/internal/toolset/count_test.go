package toolset_test

import (
	"encoding/json"
	"slices"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// Each call is counted once by its outcome. Whatever a model calls it, a tool has one label, and so have all tools of a
// server and all names that are none.
func TestCallsAreCounted(t *testing.T) {
	run, failed, secret, server, doubt := effect{named("bash_exec")}, named("failed"), named("secret"), named("srv__a"), effect{named("doubt")}
	failed.result, doubt.result = toolset.Failed("no"), toolset.Result{InDoubt: true, Text: "?"}
	server.spec.Server = "srv"
	config := &registrypb.TurnConfig{ToolLayers: []*registrypb.ToolLayer{{Name: "home", Deny: []string{"secret"}}}}
	calls, j := toolsettest.Calls(t, config, run, failed, secret, server, doubt)
	for n, c := range []struct {
		name, args string
		begun      bool
		want       []string
	}{
		{"bash_exec", "{}", false, []string{"exec effect ok"}},
		{"Bash-Exec", "{}", false, []string{"exec effect ok"}},
		{"bash_exec", "[]", false, []string{"exec read invalid"}},
		{"bash_exec", "{}", true, []string{"exec effect in_doubt"}},
		{"failed", "{}", false, []string{"failed read error"}},
		{"secret", "{}", false, []string{"denied by home", "secret read denied"}},
		{"srv__a", "{}", false, []string{"srv__* read ok"}},
		{"doubt", "{}", false, []string{"doubt effect in_doubt"}},
		{"rm -rf", "{}", false, []string{"unknown read invalid"}},
	} {
		j.Counted = nil
		key := "tool:" + string(rune('1'+n)) + ":1"
		if _, err := toolsettest.Use(t.Context(), calls, key, model.ToolCall{Name: c.name, Arguments: json.RawMessage(c.args)}, c.begun); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(j.Counted, c.want) {
			t.Errorf("%s %s: %q, want %q", c.name, c.args, j.Counted, c.want)
		}
	}
}
