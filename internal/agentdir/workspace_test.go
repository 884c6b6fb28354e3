package agentdir

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
)

// S4-13, S4-14: the configured directory, that of agents.defaults for the default agent, the
// two of openclaw, and that of the agent.
func TestWorkspacePath(t *testing.T) {
	base := WorkspaceSpec{Home: "/h", AgentDir: "/h/agents/a", UserHome: "/home/u", ID: "a"}
	for _, c := range []struct {
		flavor, configured, defaults string
		main                         bool
		want                         string
	}{
		{"openclaw", "/srv/a/", "/srv/d", true, "/srv/a"},
		{"openclaw", "~/a", "", false, "/home/u/a"},
		{"openclaw", "", "/srv/d", true, "/srv/d"},
		{"openclaw", "", "", true, "/h/workspace"},
		{"openclaw", "", "/srv/d", false, "/h/workspace-a"},
		{"theclaw", "", "", true, "/h/agents/a/workdir"},
		{"theclaw", "", "/srv/d", true, "/srv/d"},
		{"theclaw", "", "/srv/d", false, "/h/agents/a/workdir"},
		{"agentclaw", "", "", false, "/h/agents/a/workdir"},
		{"theclaw", "/srv/a", "", false, "/srv/a"},
	} {
		w := base
		w.Flavor, w.Configured, w.Defaults, w.Default = c.flavor, c.configured, c.defaults, c.main
		if got := w.Path(); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	base.UserHome, base.Configured = "", "~/a"
	if got := base.Path(); got != "" {
		t.Errorf("without a home directory: %s", got)
	}
}

// S4-15: the configured directory, else that below agents.
func TestAgentDirOf(t *testing.T) {
	if got := AgentDirOf("/h", "a", ""); got != "/h/agents/a" {
		t.Error(got)
	}
	if got := AgentDirOf("/h", "a", "/srv/a/"); got != "/srv/a" {
		t.Error(got)
	}
}

// S4-02: the settings decide the workspace, it is shown with its origin, and none may hold
// the home.
func TestWorkspaceOfAnAgent(t *testing.T) {
	h := openHome(t)
	create(t, h, "a1")
	create(t, h, "main")
	of := func(id, text string) (path, origin string) {
		t.Helper()
		write(t, h.DefaultsFile(), text)
		a, err := h.Load(id)
		if err != nil || a.Problem != nil {
			t.Fatal(err, a.Problem)
		}
		v, _ := a.Get("workspace")
		return a.Workspace, v.Origin
	}
	for _, c := range []struct{ id, text, path, origin string }{
		{"a1", "run: {timeout: 5m}\n", filepath.Join(h.AgentDir("a1"), "workdir"), ""},
		{"a1", "agents: {list: [{id: a1, workspace: /srv/w}]}\n", "/srv/w", "theclaw.yaml:1"},
		{"main", "agents:\n  defaults: {workspace: /srv/d}\n", "/srv/d", "theclaw.yaml:2"},
		{"a1", "agents:\n  defaults: {workspace: /srv/d}\n", filepath.Join(h.AgentDir("a1"), "workdir"), ""},
		{"a1", "flavor: openclaw\n", filepath.Join(h.Path(), "workspace-a1"), "flavor openclaw"},
		{"main", "flavor: openclaw\n", filepath.Join(h.Path(), "workspace"), "flavor openclaw"},
		{"a1", "agents: {list: [{id: a1, workspace: " + filepath.Join(h.Path(), "workspace-x") + "}]}\n", filepath.Join(h.Path(), "workspace-x"), "theclaw.yaml:1"},
		{"a1", "agents: {list: [{id: a1, agent_dir: " + h.AgentDir("a1") + "}]}\n", filepath.Join(h.AgentDir("a1"), "workdir"), ""},
	} {
		if path, origin := of(c.id, c.text); path != c.path || origin != c.origin {
			t.Errorf("%s, %q: %s from %q", c.id, c.text, path, origin)
		}
	}
	for dir, want := range map[string]string{
		h.Path(): "contains the home", filepath.Dir(h.Path()): "contains the home", "/": "contains the home",
		h.RunDir(): "among the files of the home", h.AgentDir("main"): "among the files of the home",
		"~/x": "no home directory",
	} {
		write(t, h.DefaultsFile(), "agents: {list: [{id: a1, workspace: "+dir+"}]}\n")
		if _, err := h.Load("a1"); !fault.Is(err, fault.ConfigInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	write(t, h.DefaultsFile(), "run: {timeout: 5m}\n")
	if _, err := h.Load("a1"); err != nil {
		t.Fatal(err)
	}
	write(t, h.DefaultsFile(), "agents:\n  list:\n    - id: a1\n      agent_dir: /srv/a\n")
	if a, err := h.Load("a1"); err == nil && a.Problem == nil || err != nil && !strings.Contains(err.Error(), "agent_dir") {
		t.Errorf("another directory: %v", err)
	}
	if _, problem := h.HomeSettings(); problem == nil || !strings.Contains(problem.Error(), "theclaw.yaml:4:7: the directory of agent a1 is") {
		t.Errorf("another directory: %v", problem)
	}
	for _, path := range []string{h.Path(), filepath.Dir(h.Path()), h.RunDir()} {
		write(t, h.DefaultsFile(), "mcp: {servers: {files: {command: [x], paths: ["+path+"]}}}\n")
		if _, problem := h.HomeSettings(); problem == nil || !strings.Contains(problem.Error(), "theclaw.yaml:1:17: mcp.servers.files: paths: "+path+" holds the home") {
			t.Errorf("a server that reads the home: %v", problem)
		}
	}
}

// S2-02, S4-12: keys that need a restart are named until the old value is back.
func TestRestartKeys(t *testing.T) {
	h := openHome(t)
	for _, c := range []struct{ text, want string }{
		{"run: {timeout: 5m}\n", ""},
		{"run: {timeout: 6m}\n", ""},
		{"storage: {engine: postgres, dsns: ['env:DSN']}\n", "storage.engine storage.dsns"},
		{"storage: [\n", "storage.engine storage.dsns"},
		{"storage: {engine: sqlite}\n", ""},
		{"gateway: {http: '127.0.0.1:9'}\n", "gateway.http"},
		{"gateway: {http: '0.0.0.0:9', public_url: 'https://a.example', trusted_proxies: [10.0.0.0/8]}\n", "gateway.http gateway.public_url gateway.trusted_proxies"},
		{"run: {timeout: 5m}\n", ""},
	} {
		write(t, h.DefaultsFile(), c.text)
		s, err := h.HomeState()
		if got := strings.Join(s.Restart, " "); err != nil || got != c.want {
			t.Errorf("%q: %q, %v", c.text, got, err)
		}
	}
}

// S4-87, S4-89, S4-90: a new workspace of the flavor openclaw has seven files and an empty repository that git takes; one
// that exists stays as it is, one that was killed in the middle is begun again, and skip_bootstrap makes none.
func TestMakeWorkspace(t *testing.T) {
	h := openHome(t)
	create(t, h, "a1")
	of := func(text string) *Agent {
		t.Helper()
		write(t, h.DefaultsFile(), text)
		a, err := h.Load("a1")
		if err != nil || a.Problem != nil {
			t.Fatal(err, a.Problem)
		}
		return a
	}
	at := filepath.Join(t.TempDir(), "deep", "workspace")
	entry := "agents: {list: [{id: a1, workspace: " + at + "}]}\n"
	for _, text := range []string{entry, "skip_bootstrap: true\nflavor: openclaw\n" + entry} {
		if made, err := of(text).MakeWorkspace(); made || err != nil {
			t.Errorf("%q: %t, %v", text, made, err)
		}
	}
	a := of("flavor: openclaw\n" + entry)
	unfinished := filepath.Join(filepath.Dir(at), ".theclaw-workspace-a1")
	if err := os.MkdirAll(filepath.Join(unfinished, ".git"), 0o700); err != nil { // killed
		t.Fatal(err)
	}
	if made, err := a.MakeWorkspace(); !made || err != nil {
		t.Fatal(made, err)
	}
	var names []string
	entries, err := os.ReadDir(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := strings.Fields(".git AGENTS.md BOOTSTRAP.md HEARTBEAT.md IDENTITY.md SOUL.md TOOLS.md USER.md"); !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if _, err := os.Stat(unfinished); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	git := exec.CommandContext(t.Context(), "git", "-C", at, "status", "--porcelain")
	git.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0="+at)
	if out, err := git.CombinedOutput(); err != nil || strings.Count(string(out), "?? ") != 7 {
		t.Errorf("%v: %s", err, out)
	}
	write(t, filepath.Join(at, "SOUL.md"), "mine")
	if err := os.Remove(filepath.Join(at, "BOOTSTRAP.md")); err != nil {
		t.Fatal(err)
	}
	if made, err := a.MakeWorkspace(); made || err != nil {
		t.Error(made, err)
	}
	if text, err := os.ReadFile(filepath.Join(at, "SOUL.md")); err != nil || string(text) != "mine" {
		t.Errorf("%q %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(at, "BOOTSTRAP.md")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the file of the first conversation came back")
	}
	write(t, filepath.Join(filepath.Dir(at), "file"), "")
	a.Workspace = filepath.Join(filepath.Dir(at), "file", "workspace")
	if made, err := a.MakeWorkspace(); made || err == nil {
		t.Error("a workspace in a file")
	}
}
