package registry_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// F8: a settings file that becomes invalid leaves the last good settings of a running agent
// in force, at every layer; the problem is reported with its place. An agent is not started
// by them, and a registry that starts does not know them: its other agents work.
func TestLastGoodSettings(t *testing.T) { backendtest.Each(t, testLastGoodSettings) }

func testLastGoodSettings(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Create("a2")
	w.Config("a1", "run.timeout", "7m")
	w.Config("a1", "quota.peer_messages_per_day", "100")
	config := replaceConfig(t, o, w, "a1", func(s string) string { return s })
	serves := func(when string, pushed int) {
		t.Helper()
		w.Push("a1", "bob", when, when)
		w.Answer("a1", "answer "+when)
		w.Deliver("a1", "threads/peers/main-bob")
		turns, err := w.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "a1"})
		if n := len(backendtest.Must(t, turns, err).GetTurns()); n != pushed {
			t.Errorf("%s: %d turns, want %d", when, n, pushed)
		}
		c, err := w.Agents.GetAgentConfig(t.Context(), &registryv1.GetAgentConfigRequest{AgentId: "a1"})
		for _, v := range backendtest.Must(t, c, err).GetValues() {
			if v.GetKey() == "run.timeout" && v.GetValue() != "7m" && v.GetValue() != "7m0s" {
				t.Errorf("%s: run.timeout is %s", when, v.GetValue())
			}
		}
	}
	serves("before", 1)
	if a := healthOf(t, w, "a1"); a.GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_OK || a.GetProblem() != "" {
		t.Fatalf("before: %v", a)
	}

	replaceConfig(t, o, w, "a1", func(s string) string { return s + "nonsense: 1\n" })
	place := "config.yaml:" + strconv.Itoa(strings.Count(config, "\n")+1) + ":1: "
	degraded(t, w, place)
	serves("with a broken config.yaml", 2)
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); !fault.Is(err, fault.ConfigInvalid) || !strings.Contains(err.Error(), place) {
		t.Errorf("started by a broken file: %v", err)
	}
	replaceConfig(t, o, w, "a1", func(string) string { return config })
	if a := healthOf(t, w, "a1"); a.GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_OK || a.GetProblem() != "" {
		t.Errorf("corrected: %v", a)
	}
	serves("corrected", 3)

	defaults := filepath.Join(o.Home, "theclaw.yaml")
	if err := os.WriteFile(defaults, []byte("defaults:\n  run:\n    nonsense: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	degraded(t, w, "theclaw.yaml:3:5: ")
	serves("with a broken theclaw.yaml", 4)
	replaceConfig(t, o, w, "a1", func(s string) string { return "[" })
	degraded(t, w, ".yaml:")
	serves("with both broken", 5)
	if err := os.Remove(defaults); err != nil {
		t.Fatal(err)
	}
	degraded(t, w, "config.yaml:1:")
	w.Push("a1", "bob", "kept", "kept")

	w.Stop()
	w = o.Start(t, registry.Config{})
	if a := healthOf(t, w, "a1"); a.GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_FAILED || !strings.Contains(a.GetProblem(), "config.yaml:1:") {
		t.Errorf("after a restart: %v", a)
	}
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); !fault.Is(err, fault.ConfigInvalid) {
		t.Errorf("started after a restart: %v", err)
	}
	w.Push("a2", "bob", "hello", "")
	due := w.Due(backendtest.KindRun, "r1", time.Minute)
	for _, d := range due {
		w.Release(d.GetLease())
	}
	if len(due) == 0 {
		t.Error("the other agent has no work")
	}
	replaceConfig(t, o, w, "a1", func(string) string { return config })
	if a := healthOf(t, w, "a1"); a.GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_OK {
		t.Errorf("corrected after a restart: %v", a)
	}
	w.StopAgent("a2")
	if !w.Push("a1", "bob", "kept", "kept").GetDuplicate() {
		t.Error("the message is not kept")
	}
	w.Answer("a1", "at last")
}

// replaceConfig changes config.yaml as a person does, and returns what it was.
func replaceConfig(t *testing.T, o backendtest.Options, w *backendtest.World, id string, change func(string) string) string {
	t.Helper()
	if o.DSN == "" {
		path := filepath.Join(o.Home, "agents", id, "config.yaml")
		old, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(change(string(old))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(old)
	}
	e, err := postgres.New(t.Context(), postgres.Options{DSN: o.DSN, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	old, _, err := e.Agents().Read(t.Context(), id, "config.yaml")
	if err == nil {
		_, err = e.Agents().Write(t.Context(), id, "config.yaml", []byte(change(string(old))), "")
	}
	if err != nil {
		t.Fatal(err)
	}
	// It reads the rows, as a registry does that has had a notice.
	if _, err := w.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{}); err != nil {
		t.Fatal(err)
	}
	return string(old)
}

func healthOf(t *testing.T, w *backendtest.World, id string) *registryv1.Agent {
	t.Helper()
	r, err := w.Agents.GetAgent(t.Context(), &registryv1.GetAgentRequest{AgentId: id})
	return backendtest.Must(t, r, err).GetAgent()
}

// degraded checks what each call reports of a1.
func degraded(t *testing.T, w *backendtest.World, place string) {
	t.Helper()
	st, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"})
	list, err2 := w.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{})
	for _, a := range []*registryv1.Agent{healthOf(t, w, "a1"), backendtest.Must(t, st, err).GetAgent(), backendtest.Must(t, list, err2).GetAgents()[0]} {
		if a.GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_DEGRADED || !strings.Contains(a.GetProblem(), place) || !strings.Contains(a.GetProblem(), "the last good settings stay in force") {
			t.Errorf("want %s: %v", place, a)
		}
	}
}

// S4-12: keys of the home's own file that are in force after a restart, and what is wrong with it, are named also where the
// other settings are in a database.
func TestOwnFileOfHome(t *testing.T) { backendtest.Each(t, testOwnFileOfHome) }

func testOwnFileOfHome(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	status := func() *registryv1.GetHomeConfigResponse {
		t.Helper()
		r, err := w.Homes.GetHomeConfig(t.Context(), &registryv1.GetHomeConfigRequest{})
		return backendtest.Must(t, r, err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(o.Home, "theclaw.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s := status(); s.GetProblem() != "" || len(s.GetRestartNeededKeys()) > 0 {
		t.Errorf("at the start: %v", s)
	}
	write("gateway: {http: '127.0.0.1:9'}\n")
	if s := status(); s.GetProblem() != "" || !slices.Equal(s.GetRestartNeededKeys(), []string{"gateway.http"}) {
		t.Errorf("with another address: %v", s)
	}
	write("run: {timeout: 5m}\ngateway: [\n")
	if s := status(); !strings.Contains(s.GetProblem(), "theclaw.yaml:2:") || !slices.Equal(s.GetRestartNeededKeys(), []string{"gateway.http"}) {
		t.Errorf("with a broken file: %v", s)
	}
	write("run: {timeout: 5m}\n")
	if s := status(); s.GetProblem() != "" || len(s.GetRestartNeededKeys()) > 0 {
		t.Errorf("with the first address again: %v", s)
	}
}
