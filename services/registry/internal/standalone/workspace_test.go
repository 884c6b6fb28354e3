package standalone_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S4-87: the workspace of an agent of the flavor openclaw is there when the agent is created, and again
// at a start when it was removed.
func TestWorkspaceIsMade(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "theclaw.yaml"), []byte("flavor: openclaw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, backendtest.Options{Home: home}, registry.Config{})
	w.Create("a1")
	at := filepath.Join(home, "workspace-a1")
	for range 2 {
		if _, err := os.Stat(filepath.Join(at, "AGENTS.md")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		backendtest.Must2(w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}))
	}
}
