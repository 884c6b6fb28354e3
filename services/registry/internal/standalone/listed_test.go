package standalone_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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

// S4-12: the next turn has the model of a changed file; a broken one leaves the old values in
// force and is named; the same settings as JSON5 give the same turn. S4-05, S4-02: the turn has
// the identity and the workspace of the entry.
func TestNextTurnUsesTheChangedHome(t *testing.T) {
	o := backendtest.Options{Home: filepath.Join(t.TempDir(), "h")}
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	path := func(name string) string { return filepath.Join(o.Home, name) }
	n := 0
	turn := func(when string) *registryv1.BeginTurnResponse {
		t.Helper()
		n++
		w.Push("a1", "bob", when, "k"+strconv.Itoa(n))
		due := w.Due(backendtest.KindRun, "r1", time.Minute)
		if len(due) != 1 {
			t.Fatalf("%s: due %v", when, due)
		}
		ctx := backendtest.Under(t.Context(), due[0].GetLease())
		b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
		p := backendtest.Must(t, b, err).GetEvents()[0]
		begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
		backendtest.Must(t, begun, err)
		fin, err := w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "x"})
		backendtest.Must(t, fin, err)
		w.Release(due[0].GetLease())
		return begun
	}
	check := func(when, model string) {
		t.Helper()
		c := turn(when).GetConfig()
		if c.GetProvider()+"/"+c.GetModel() != model {
			t.Errorf("%s: %s/%s, want %s", when, c.GetProvider(), c.GetModel(), model)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	problem := func() string {
		t.Helper()
		r, err := w.Homes.GetHomeConfig(t.Context(), &registryv1.GetHomeConfigRequest{})
		return backendtest.Must(t, r, err).GetProblem()
	}
	check("no file", "/") // the runner chooses
	write("theclaw.yaml", "model: lab/\n")
	check("a broken first file", "/")
	if p := problem(); !strings.Contains(p, "theclaw.yaml:1:8: model: ") {
		t.Errorf("the problem is %q", p)
	}
	write("theclaw.yaml", "model: lab/one\n")
	check("a file", "lab/one")
	write("theclaw.yaml", "model: lab/two\nagents: {list: [{id: a1, workspace: "+path("workspace-x")+", identity: {name: Max, theme: calm}}]}\n")
	begun := turn("a changed file")
	if c := begun.GetConfig(); c.GetModel() != "two" || c.GetWorkdir() != path("workspace-x") || !strings.HasSuffix(begun.GetFiles()[0].GetContent(), "\nName: Max, Theme: calm\n") {
		t.Errorf("%v, %v", c, begun.GetFiles()[0])
	}
	write("theclaw.yaml", "model: [\n")
	check("a broken file", "lab/two")
	if p := problem(); !strings.Contains(p, "theclaw.yaml:1:8: ") {
		t.Errorf("the problem is %q", p)
	}
	if err := os.Remove(path("theclaw.yaml")); err != nil {
		t.Fatal(err)
	}
	write("theclaw.json5", "{model: 'lab/two', // as it was\n}\n")
	check("JSON5", "lab/two")
	if p := problem(); p != "" {
		t.Errorf("the problem is %q", p)
	}
	write("theclaw.json5", "{model: 'lab/three'}\n")
	check("changed JSON5", "lab/three")
}
