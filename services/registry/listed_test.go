package registry_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S4-01, S4-12: an entry of agents.list without an agent is made and started at the start of
// the registry and when the settings change. An agent that a crash left without a start is
// started, one that was stopped is not, and removing an entry deletes nothing.
func TestListedAgents(t *testing.T) {
	o := backendtest.Options{Home: filepath.Join(t.TempDir(), "h")}
	if err := os.MkdirAll(o.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.Home, "theclaw.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("agents: {list: [{id: first, kind: system}]}\n")
	w := o.Start(t, registry.Config{})
	started := func(id string) bool {
		a, err := w.Agents.GetAgent(t.Context(), &registryv1.GetAgentRequest{AgentId: id})
		return err == nil && a.GetAgent().GetStarted()
	}
	backendtest.Await(t, "first is made", func() bool { return started("first") })

	for _, id := range []string{"crashed", "stopped"} {
		if _, err := w.Agents.CreateAgent(t.Context(), &registryv1.CreateAgentRequest{AgentId: id}); err != nil {
			t.Fatal(err)
		}
	}
	w.StopAgent("stopped")
	write("agents: {list: [{id: stopped}, {id: crashed}, {id: later}]}\n")
	backendtest.Await(t, "later is made", func() bool { return started("later") })
	if !started("crashed") || started("stopped") || !started("first") {
		t.Errorf("crashed %v, stopped %v, first %v", started("crashed"), started("stopped"), started("first"))
	}

	// A deleted agent is not made again by the same settings.
	w.StopAgent("later")
	if _, err := w.Agents.DeleteAgent(t.Context(), &registryv1.DeleteAgentRequest{AgentId: "later"}); err != nil {
		t.Fatal(err)
	}
	write("agents: {list: [{id: last}]}\n")
	backendtest.Await(t, "last is made", func() bool { return started("last") })
	if w.Have("later") {
		t.Error("a deleted agent is back")
	}
}
