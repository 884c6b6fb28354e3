package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// Registries that share a database share the sections of the home's settings: what one
// imports counts at all, over the defaults of their own files; a broken text changes nothing,
// and their own files may not have these sections.
func TestSharedSettings(t *testing.T) {
	dsn := pgtest.Database(t)
	var worlds []*backendtest.World
	for range 2 {
		o := backendtest.Options{Home: filepath.Join(t.TempDir(), "h"), DSN: dsn}
		if err := os.MkdirAll(o.Home, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.Home, "theclaw.yaml"), []byte("defaults: {run: {timeout: 3m, concurrency: 7}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		worlds = append(worlds, o.Start(t, registry.Config{}))
	}
	one, two := worlds[0], worlds[1]
	one.Create("a1")
	value := func(w *backendtest.World, key string) string {
		c, err := w.Agents.GetAgentConfig(t.Context(), &registryv1.GetAgentConfigRequest{AgentId: "a1"})
		for _, v := range backendtest.Must(t, c, err).GetValues() {
			if v.GetKey() == key {
				return v.GetValue() + " of " + v.GetOrigin()
			}
		}
		return "none"
	}
	set := func(text, version string) (string, error) {
		r, err := one.Homes.SetHomeConfig(t.Context(), &registryv1.SetHomeConfigRequest{Text: text, Version: version})
		return r.GetVersion(), err
	}
	version, err := set("agents:\n  defaults:\n    run: {timeout: 4m}\n  list:\n    - {id: a1, default: true, run: {timeout: 5m}}\n", "")
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range worlds {
		for !strings.HasPrefix(value(w, "run.timeout"), "5m") { // a notice brings it
			if t.Context().Err() != nil {
				t.Fatalf("registry %d: run.timeout is %s", i, value(w, "run.timeout"))
			}
		}
		if got := value(w, "run.concurrency"); !strings.HasPrefix(got, "7 of theclaw.yaml:1") {
			t.Errorf("registry %d: run.concurrency is %s", i, got)
		}
		if got := value(w, "run.timeout"); !strings.Contains(got, "edge.yaml:5") {
			t.Errorf("registry %d: run.timeout is %s", i, got)
		}
	}
	for name, c := range map[string]struct{ text, version, reason, what string }{
		"an old version": {"bindings: []\n", "", fault.InvalidArgument, "version"},
		"broken":         {"bindings:\n  - {agent: a1}\n", version, fault.ConfigInvalid, "edge.yaml:2:"},
		"of a registry":  {"storage: {engine: sqlite}\n", version, fault.ConfigInvalid, "each machine"},
		"of a gateway":   {"gateway: {http: \"off\"}\n", version, fault.ConfigInvalid, "each machine"},
	} {
		if _, err := set(c.text, c.version); !fault.Is(err, c.reason) || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h, err := two.Homes.GetHomeConfig(t.Context(), &registryv1.GetHomeConfigRequest{})
	if g := backendtest.Must(t, h, err); g.GetVersion() != version || g.GetProblem() != "" || g.GetName() != "edge.yaml" {
		t.Errorf("the settings are %v", g)
	}
	// A section in the file of a registry leaves what was good in force.
	if err := os.WriteFile(filepath.Join(two.Home, "theclaw.yaml"), []byte("bindings:\n  - {agent_id: a1, match: {channel: webhook}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := value(two, "run.timeout"); !strings.HasPrefix(got, "5m") {
		t.Errorf("with a section in its own file: %s", got)
	}
}
