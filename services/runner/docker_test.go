package runner_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
)

// fakeDocker builds the stand-in of docker, which has the image of the default settings, and returns its path and the
// directory of its state.
func fakeDocker(t *testing.T) (program, state string) {
	t.Helper()
	dir := t.TempDir()
	program, state = filepath.Join(dir, "docker"), filepath.Join(dir, "state")
	if out, err := exec.Command("go", "build", "-o", program, "../../internal/sandbox/docker/testdata/fakedocker").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "images"), []byte("openclaw-sandbox:bookworm-slim"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what has left a command
		names, _ := os.ReadDir(filepath.Join(state, "names"))
		for _, n := range names {
			_ = exec.Command(program, "rm", "--force", n.Name()).Run()
		}
	})
	return program, state
}

// S4-72, S4-75, S4-76, S4-78: with the driver docker the commands of a turn run in the container of their scope, with
// the directories of its access; file tools take paths of the container; nothing runs where docker does not work.
func TestDocker(t *testing.T) {
	program, state := fakeDocker(t)
	for _, c := range []struct{ settings, container, file, temp string }{
		{"{driver: docker}", "theclaw-sbx-agent-a1-d4f1bd6b", "agents/a1/workdir", ""},
		{"{driver: docker, workspace_access: none}", "theclaw-sbx-agent-a1-d4f1bd6b", "sandboxes/agent-a1-d4f1bd6b", ""},
		{"{driver: docker, workspace_access: ro, docker: {workdir: /w, container_prefix: x-}}", "x-agent-a1-d4f1bd6b", "agents/a1/workdir", "sandboxes/agent-a1-d4f1bd6b"},
		{"{driver: docker, scope: shared, workspace_access: none}", "theclaw-sbx-shared-d18aac96", "sandboxes/shared-d18aac96", ""},
	} {
		w := newWorld(t)
		w.agent("a1", "tools: {profile: full}\noutbound: []\nsandbox: "+c.settings)
		shop := w.runner(nil, func(cfg *runner.Config) { cfg.Docker, cfg.Home = program, w.home.Path() })
		m := &coder{world: w, shop: shop}
		if got := m.call(bashCall("echo one >file; pwd; echo $TMPDIR", "")); !strings.Contains(got, c.file) || c.temp != "" && !strings.Contains(got, c.temp) {
			t.Errorf("%s: the command reports %s", c.settings, got)
		}
		b, err := os.ReadFile(filepath.Join(w.home.Path(), c.file, "file"))
		if err != nil || string(b) != "one\n" {
			t.Errorf("%s: file %q, %v", c.settings, b, err)
		}
		names, err := os.ReadDir(filepath.Join(state, "names"))
		if err != nil || len(names) != 1 || names[0].Name() != c.container {
			t.Errorf("%s: containers %v, %v", c.settings, names, err)
		}
		dir := "/workspace"
		if c.temp != "" {
			dir = "/w"
		}
		for _, call := range []string{`read {"path":"` + dir + `/file"}`, bashCall("cat file", `,"cwd":"`+dir+`"`), `python {"code":"print(open('file').read())"}`} {
			if got := m.call(call); !strings.Contains(got, "one") {
				t.Errorf("%s: %s reports %s", c.settings, call, got)
			}
		}
		key := "agent:a1:telegram:group:1"
		tools, err := shop.ListTools(t.Context(), &runnerpb.ListToolsRequest{AgentId: "a1", SessionKey: key})
		if err != nil || tools.GetSandbox().GetLevel() != "docker" || tools.GetSandbox().GetProblem() != "" {
			t.Errorf("%s: %v, %v", c.settings, tools.GetSandbox(), err)
		}
		shop.stop()
		if err := exec.Command(program, "rm", "--force", c.container).Run(); err != nil {
			t.Error(err)
		}
	}
}

// S4-64, S4-78: a process in the background has no input; without a daemon nothing runs, and the result says why.
func TestDockerProcessAndDown(t *testing.T) {
	program, state := fakeDocker(t)
	w := newWorld(t)
	w.agent("a1", "tools: {profile: full}\noutbound: []\nsandbox: {driver: docker}")
	shop := w.runner(nil, func(cfg *runner.Config) { cfg.Docker, cfg.Home = program, w.home.Path() })
	m := &coder{world: w, shop: shop}
	id := processID.FindString(m.call(bashCall("mkfifo gate; echo begun; read x <gate; echo over", `,"background":true`)))
	if id == "" {
		t.Fatal("no process")
	}
	if got := m.call(`process {"action":"write","id":"` + id + `","text":"x"}`); !strings.Contains(got, "have no input") {
		t.Errorf("write reports %s", got)
	}
	if got := m.call(`process {"action":"kill","id":"` + id + `"}`); !strings.Contains(got, "killed") {
		t.Errorf("kill reports %s", got)
	}
	if err := os.WriteFile(filepath.Join(state, "down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := m.call(bashCall("touch ran", ""))
	for _, word := range []string{"Cannot connect to the Docker daemon", "nothing was run", "docker version"} {
		if !strings.Contains(got, word) {
			t.Errorf("without a daemon: %s", got)
		}
	}
	if _, err := os.Stat(m.file("ran")); err == nil {
		t.Error("it ran")
	}
	tools, err := shop.ListTools(context.Background(), &runnerpb.ListToolsRequest{AgentId: "a1"})
	if err != nil || !strings.Contains(tools.GetSandbox().GetProblem(), "Cannot connect") || tools.GetSandbox().GetProblemFix() == "" {
		b, _ := json.Marshal(tools.GetSandbox())
		t.Errorf("%s, %v", b, err)
	}
	if err := os.Remove(filepath.Join(state, "down")); err != nil {
		t.Error(err)
	}
}
