package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A name in a list of tools that no tool has is found in the lists of the agent and of the home. Groups, patterns, other
// names of tools and tools of other versions are none.
func TestUnknownNames(t *testing.T) {
	settings := &registry.GetAgentConfigResponse{Values: []*registry.ConfigValue{
		{Key: "tools.allow", Value: "[exec, shell, Web-Fetch, 'group:fs', 'github__*', resize, reszie]"},
		{Key: "tools.deny", Value: "[cron, '']"},
		{Key: "agents.defaults.tools.deny", Value: "[github__drop, reszie]"},
		{Key: "pai.model", Value: "no_tool"},
	}}
	if got := unknownNames(listed(settings), []string{"exec", "resize"}); !slices.Equal(got, []string{"github__drop", "reszie"}) {
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
