package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/toolpolicy"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// A name in a list of tools that no tool has is found in the lists of the agent and of the home. Groups, patterns, other
// names of tools and tools of other versions are none.
func TestUnknownNames(t *testing.T) {
	settings := &registry.GetAgentConfigResponse{Values: []*registry.ConfigValue{
		{Key: "tools.allow", Value: "[exec, shell, Web-Fetch, 'group:fs', 'github__*', resize, reszie]"},
		{Key: "tools.deny", Value: "[cron, '']"},
		{Key: "agents.defaults.tools.deny", Value: "[github__drop, reszie]"},
		{Key: "tools.sandbox.tools.deny", Value: "[exce]"},
		{Key: "tools.by_provider.openai/gpt-5", Value: "{profile: coding, also_allow: [exac]}"},
		{Key: "agents.defaults.tools.by_provider.ollama", Value: "{allow: [resizee], deny: [exce]}"},
		{Key: "pai.model", Value: "no_tool"},
	}}
	x := &examination{}
	for _, l := range listed(settings) {
		x.unknown("a1: "+l.key, l.entries, []string{"exec", "resize"}, "more")
	}
	var got []string
	for _, f := range x.findings {
		got = append(got, f.Detail+" - "+f.Fix)
		if f.Check != "tools" || f.Status != warning {
			t.Errorf("%+v", f)
		}
	}
	if want := []string{
		"a1: tools.allow names reszie, and there is no such tool - did you mean resize? remove it, or correct it; more",
		"a1: agents.defaults.tools.deny names github__drop, and there is no such tool - remove it, or correct it; more",
		"a1: agents.defaults.tools.deny names reszie, and there is no such tool - did you mean resize? remove it, or correct it; more",
		"a1: tools.sandbox.tools.deny names exce, and there is no such tool - did you mean exec? remove it, or correct it; more",
		"a1: tools.by_provider.openai/gpt-5.also_allow names exac, and there is no such tool - did you mean exec? remove it, or correct it; more",
		"a1: agents.defaults.tools.by_provider.ollama.allow names resizee, and there is no such tool - did you mean resize? remove it, or correct it; more",
		"a1: agents.defaults.tools.by_provider.ollama.deny names exce, and there is no such tool - did you mean exec? remove it, or correct it; more",
	}; !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// The names in the lists that the flavors set are known.
func TestKnownNames(t *testing.T) {
	if got := unknownNames(slices.Concat(toolpolicy.SandboxAllow, toolpolicy.SandboxDeny), []string{"exec"}); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// A list of an account that names no tool of any agent, and a server that no list of the home has, are found: what they
// deny is allowed.
func TestUnknownInTheHome(t *testing.T) {
	home, err := layer.ReadHome(layer.File{Name: "theclaw.yaml", Data: []byte(`channels:
  tg:
    type: telegram
    token: env:TG
    tools:
      group: {deny: [exce, exec, "github__*", "group:fs"]}
      dm: {allow: [github__get]}
mcp:
  servers:
    github: {command: [github-mcp-server]}
`)})
	if err != nil {
		t.Fatal(err)
	}
	x := &examination{ofHome: home}
	x.conversations()
	if len(x.findings) > 0 {
		t.Errorf("without a runner: %+v", x.findings)
	}
	x.known = []string{"exec", "github__get"}
	x.conversations()
	x.serversOf("a1", &registry.GetAgentConfigResponse{Values: []*registry.ConfigValue{{Key: "mcp.use", Value: "[github, githb]"}}})
	var got []string
	for _, f := range x.findings {
		got = append(got, f.Detail+" - "+f.Fix)
	}
	if want := []string{
		"channels.tg.tools.group.deny names exce, and there is no such tool - did you mean exec? remove it, or correct it; the list is in theclaw.yaml",
		"a1: mcp.use names githb, and there is no such MCP server - did you mean github? correct it, or add the server: 'agentctl mcp add githb'",
	}; !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// Of more than 128 tools those of MCP servers that the model does not have are found.
func TestTooManyTools(t *testing.T) {
	got := leftOut([]*runner.Tool{{Name: "exec"}, {Name: "a__b", Denied: "there are too many", OverLimit: true}, {Name: "a__c", Denied: "denied by layer 3 home"}, {Name: "a__d", OverLimit: true}})
	if !slices.Equal(got, []string{"a__b", "a__d"}) {
		t.Errorf("%q", got)
	}
}

// A scratch directory of more than 1 GiB is named, with what to do.
func TestScratch(t *testing.T) {
	home := layout.At(t.TempDir())
	x := &examination{home: home}
	x.scratch(t.Context())
	for path, size := range map[string]int64{filepath.Join(home.SandboxesDir(), "agent-a-1"): muchScratch + 1, filepath.Join(home.SandboxesDir(), "agent-b-1"): muchScratch, filepath.Join(home.ServersDir(), "a", "github"): 2 * muchScratch} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, "sparse")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, size); err != nil {
			t.Fatal(err)
		}
	}
	x.scratch(t.Context())
	if len(x.findings) != 2 || !strings.Contains(x.findings[0].Detail, "agent-a-1 has 1024 MiB") || !strings.Contains(x.findings[1].Detail, "github has 2048 MiB") || x.findings[0].Status != warning {
		t.Errorf("%+v", x.findings)
	}
}
