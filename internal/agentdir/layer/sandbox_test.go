package layer_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/testing/vectors"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// sandboxDifferent are the recorded vectors of the sandbox that are decided differently here, by the section
// of the chapter on tools that says so.
var sandboxDifferent = map[int]string{
	1:  "3: the scope has one key, sandbox.scope, and no older one besides it",
	11: "3: the mode of the flavor openclaw is non-main",
	17: "3: the mode of the flavor openclaw is non-main",
	19: "5.7: the mounts and labels of a container are others; package docker has a test of its arguments",
}

func sandboxed(t *testing.T, yaml string) *config.Config {
	t.Helper()
	got, err := layer.Load(layer.Layers{AgentID: "main", Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: main\nflavor: openclaw\nsandbox: {" + yaml + "}\n")}})
	if err != nil {
		t.Fatal(err)
	}
	return &got.Config
}

// sandboxAnswer is what a vector gives here; nil: there is nothing of the kind.
func sandboxAnswer(t *testing.T, v vectors.Vector) any {
	t.Helper()
	var in struct {
		Mode, Scope *string
		SessionKey  string
	}
	var key string
	if err := json.Unmarshal(v.Input, &in); err != nil && json.Unmarshal(v.Input, &key) != nil {
		t.Fatal(err)
	}
	yaml := ""
	if in.Mode != nil {
		yaml = "mode: '" + *in.Mode + "'"
	} else if in.Scope != nil {
		yaml = "scope: " + *in.Scope
	}
	switch v.Fn {
	case "resolveSandboxScope":
		return sandboxed(t, yaml).Sandbox.Scope
	case "resolveSandboxRuntimeStatus.sandboxed":
		return sandboxed(t, yaml).SandboxAt(config.Conversation{Key: in.SessionKey}).Level != config.SandboxOff
	case "resolveSandboxScopeKey":
		return config.ScopeKey(*in.Scope, sessionkey.AgentID(strings.Split(in.SessionKey+"::", ":")[1]), config.Conversation{Key: in.SessionKey})
	case "slugifySessionKey":
		return config.Slug(key)
	case "resolveSandboxConfigForAgent (agent w)":
		return sandboxOfVector(t, v.Input)
	}
	return nil
}

// sandboxOfVector is the sandbox of an agent by the settings of the home and of the agent, in the form of the vectors.
func sandboxOfVector(t *testing.T, input json.RawMessage) any {
	t.Helper()
	var in struct {
		Agents struct {
			Defaults struct{ Sandbox map[string]any }
			List     []struct{ Sandbox map[string]any }
		}
	}
	if err := json.Unmarshal(input, &in); err != nil {
		t.Fatal(err)
	}
	// The age is below docker here, in hours.
	yaml := func(sandbox map[string]any) string {
		if prune, ok := sandbox["prune"].(map[string]any); ok {
			delete(sandbox, "prune")
			sandbox["docker"].(map[string]any)["prune"] = map[string]any{"idle": fmt.Sprint(prune["idleHours"]) + "h"}
		}
		b, err := json.Marshal(sandbox)
		if err != nil {
			t.Fatal(err)
		}
		return "sandbox: " + strings.ReplaceAll(string(b), "null", "{}") + "\n"
	}
	agent := "agent_id: w\nflavor: openclaw\n"
	if len(in.Agents.List) > 0 {
		agent += yaml(in.Agents.List[0].Sandbox)
	}
	got, err := layer.Load(layer.Layers{AgentID: "w", Home: layer.File{Name: "theclaw.yaml", Data: []byte(yaml(in.Agents.Defaults.Sandbox))}, Agent: layer.File{Name: "config.yaml", Data: []byte(agent)}})
	if err != nil {
		t.Fatal(err)
	}
	s := got.Config.Sandbox
	b, err := json.Marshal(map[string]any{
		"mode": s.Mode, "scope": s.Scope, "workspaceAccess": s.WorkspaceAccess, "image": s.Docker.Image, "network": s.Docker.Network,
		"readOnlyRoot": s.Docker.ReadOnlyRoot, "capDrop": s.Docker.CapDrop, "tmpfs": []string{"/tmp", "/var/tmp", "/run"}, "workdir": s.Docker.Workdir,
		"env": s.Docker.Env, "binds": s.Docker.Binds,
		"prune": map[string]any{"idleHours": s.Docker.Prune.Idle.Hours(), "maxAgeDays": s.Docker.Prune.MaxAge.Hours() / 24},
	})
	var out any
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// S4-72, S4-75: the keys of docker over three layers. Binds are added, variables merged, and a container that all
// agents use has the settings of the home alone.
func TestDockerLayers(t *testing.T) {
	const home = "sandbox: {driver: docker, docker: {image: 'home:1', memory: 1g, binds: ['/a:/a:ro'], env: {A: '1', B: '2'}}}\n"
	at := config.Conversation{Key: "agent:a1:telegram:group:-1"}
	for _, c := range []struct {
		home, agent string
		want        string // name, image, network, memory, binds, variables
	}{
		{home, "", "theclaw-sbx-agent-a1-d4f1bd6b home:1 none 1g [/a:/a:ro] {A: '1', B: '2'}"},
		{home, "sandbox: {docker: {image: 'own:1', cpus: 1.5, memory: 1000000, binds: ['/b:/b'], env: {B: '3'}}}\n", "theclaw-sbx-agent-a1-d4f1bd6b own:1 none 1000000 [/a:/a:ro /b:/b] {A: '1', B: '3'}"},
		{home, "sandbox: {scope: session, docker: {container_prefix: x-}}\n", "x-agent-a1-telegram-group--1-84d6b620 home:1 none 1g [/a:/a:ro] {A: '1', B: '2'}"},
		{home, "sandbox: {scope: shared, workspace_access: none, docker: {image: 'own:1', binds: ['/b:/b'], env: {B: '3'}}}\n", "theclaw-sbx-shared-d18aac96 home:1 none 1g [/a:/a:ro] {A: '1', B: '2'} shared"},
		{home, "sandbox: {scope: shared, workspace_access: rw}\n", "theclaw-sbx-shared-a1-" + config.Slug("shared:a1")[len("shared-a1-"):] + " home:1 none 1g [/a:/a:ro] {A: '1', B: '2'}"},
		{home, "sandbox: {network: open}\n", "theclaw-sbx-agent-a1-d4f1bd6b home:1 bridge 1g [/a:/a:ro] {A: '1', B: '2'} open"},
		{home, "sandbox: {docker: {network: lan}}\n", "theclaw-sbx-agent-a1-d4f1bd6b home:1 lan 1g [/a:/a:ro] {A: '1', B: '2'} open"},
		{home, "sandbox: {mode: 'off'}\n", ""},
		{home, "sandbox: {driver: auto}\n", ""},
		{"", "sandbox: {driver: docker}\n", "theclaw-sbx-agent-a1-d4f1bd6b openclaw-sandbox:bookworm-slim none  [] {LANG: C.UTF-8}"},
	} {
		got, err := layer.Load(layer.Layers{AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte(c.home)}, Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + c.agent)}})
		if err != nil {
			t.Errorf("%s: %v", c.agent, err)
			continue
		}
		turn := got.Config.TurnConfig(at, nil)
		text := ""
		if d := turn.GetSandbox().GetDocker(); d != nil {
			text = strings.Join([]string{d.GetContainer(), d.GetImage(), d.GetNetwork(), d.GetMemory(), fmt.Sprint(d.GetBinds()), config.Variables(d.GetEnv()).String()}, " ")
			if d.GetShared() {
				text += " shared"
			}
			if turn.GetSandboxNetwork() {
				text += " open"
			}
			// Commands with the network are decided on by the policy.
			if (turn.GetExec() != nil) != turn.GetSandboxNetwork() {
				t.Errorf("%s: policy %v", c.agent, turn.GetExec())
			}
		}
		if text != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.agent, text, c.want)
		}
	}
	for docker, want := range map[string]string{
		"binds: ['/:/host']": "would show /etc", "binds: ['/etc/ssl:/x']": "/etc", "binds: ['/proc:/x']": "/proc", "binds: ['/sys/fs:/x']": "/sys",
		"binds: ['/var/run/docker.sock:/x']": "docker.sock", "binds: ['/run:/x']": "docker.sock", "binds: ['name:/x']": "absolute paths", "binds: ['/a:/b:rx']": "absolute paths",
		"binds: ['/a/../etc:/b']": "/etc", "image: --privileged": "name of an image", "network: 'a b'": "network", "user: 'a b'": "USER", "cap_drop: [all]": "capability",
		"env: {'a b': x}": "variable", "env: [a]": "NAME: VALUE", "memory: much": "number", "memory: [1]": "number", "cpus: many": "decimal",
		"seccomp_profile: unconfined": "absolute", "apparmor_profile: unconfined": "name", "workdir: /": "absolute directory", "workdir: 'a:b'": "absolute directory",
		"container_prefix: -x": "letters", "prune: {idle: 1s}": "between", "privileged: true": "unknown key",
	} {
		_, err := layer.Load(layer.Layers{AgentID: "a1", Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\nsandbox: {docker: {" + docker + "}}\n")}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", docker, err)
		}
	}
}

// S4-08, S4-09, S4-52, S4-74, S4-75: the recorded decisions about sandboxes.
func TestSandboxVectors(t *testing.T) {
	vectors.Compare(t, "sandbox", sandboxDifferent, sandboxAnswer)
}

// S4-75, S4-76: where the tools of a conversation work, by the keys of three layers, which override each other
// one by one. The defaults of the three flavors, and the older values of sandbox.mode.
func TestSandboxAt(t *testing.T) {
	group := config.Conversation{Key: "agent:a1:telegram:group:-1", Thread: "threads/sessions/g"}
	direct := config.Conversation{Key: "agent:a1:main", Thread: "threads/main"}
	for _, c := range []struct {
		home, agent string
		at          config.Conversation
		want        string
	}{
		{"", "", group, "all required agent agent:a1  rw"},
		{"flavor: agentclaw\n", "", direct, "all required agent agent:a1  rw"},
		{"flavor: openclaw\n", "", direct, "non-main off agent   rw"},
		{"flavor: openclaw\n", "", config.Conversation{Thread: "threads/x"}, "non-main off agent   rw"},
		{"flavor: openclaw\n", "", group, "non-main required agent agent:a1 agent-a1-d4f1bd6b none"},
		{"flavor: openclaw\n", "", config.Conversation{Key: "agent:a1:main:thread:5"}, "non-main required agent agent:a1 agent-a1-d4f1bd6b none"},
		{"flavor: openclaw\n", "session: {main_key: home}\n", direct, "non-main required agent agent:a1 agent-a1-d4f1bd6b none"},
		{"flavor: openclaw\nsandbox: {scope: shared}\n", "sandbox: {workspace_access: ro}\n", group, "non-main required shared shared shared-d18aac96 ro"},
		{"sandbox: {mode: 'off', scope: session}\n", "sandbox: {mode: all, workspace_access: none}\n", group, "all required session agent:a1:telegram:group:-1 agent-a1-telegram-group--1-84d6b620 none"},
		{"sandbox: {scope: session, workspaceAccess: none}\n", "", config.Conversation{Thread: "threads/peers/internal-b"}, "all required session agent:a1:threads/peers/internal-b agent-a1-threads-peers-internal--1927eea7 none"},
		{"", "sandbox: {mode: 'off', workspace_access: none}\n", group, "off off agent   rw"},
		{"", "sandbox: {mode: reduced}\n", group, "all reduced agent agent:a1  rw"},
		{"sandbox: {mode: reduced}\n", "sandbox: {mode: required}\n", group, "all required agent agent:a1  rw"},
		{"sandbox: {level: reduced}\n", "sandbox: {mode: all}\n", group, "all reduced agent agent:a1  rw"},
		{"sandbox: {mode: reduced}\n", "sandbox: {mode: non-main}\n", group, "non-main required agent agent:a1  rw"},
	} {
		got, err := layer.Load(layer.Layers{AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte(c.home)}, Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + c.agent)}})
		if err != nil {
			t.Errorf("%s%s: %v", c.home, c.agent, err)
			continue
		}
		b := got.Config.SandboxAt(c.at)
		if text := strings.Join([]string{b.Mode, b.Level, b.Scope, b.Key, b.Scratch, b.Access}, " "); text != c.want {
			t.Errorf("%s%s%+v\n got %s\nwant %s", c.home, c.agent, c.at, text, c.want)
		}
		// The policy for commands decides wherever programs are on the host.
		if turn := got.Config.TurnConfig(c.at, nil); (turn.GetExec() != nil) != (b.Level == config.SandboxOff) || turn.GetSandboxMode() != b.Level {
			t.Errorf("%s%s%+v: mode %s, policy %v", c.home, c.agent, c.at, turn.GetSandboxMode(), turn.GetExec())
		}
	}
	for _, agent := range []string{"sandbox: {mode: some}\n", "sandbox: {scope: thread}\n", "sandbox: {workspace_access: write}\n", "sandbox: {level: all}\n"} {
		if _, err := layer.Load(layer.Layers{AgentID: "a1", Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\n" + agent)}}); err == nil || !strings.Contains(err.Error(), "is not one of") {
			t.Errorf("%s: %v", agent, err)
		}
	}
}

// S4-68: in a sandbox of the flavor openclaw the tool message and the tools of channels are denied by layer 8,
// whatever the settings of the agent allow; in its main session message is allowed.
func TestSandboxMessage(t *testing.T) {
	got, err := layer.Load(layer.Layers{
		AgentID: "a1", Home: layer.File{Name: "theclaw.yaml", Data: []byte("flavor: openclaw\n")},
		Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: a1\nreply: {message_tool: true}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, sandboxed := range map[string]bool{"agent:a1:main": false, "agent:a1:telegram:group:-1": true, "agent:a1:telegram:tg:dm:7": true} {
		layers := got.Config.ToolLayers(config.Conversation{Key: key}, nil)
		policy := toolpolicy.New(layers)
		for _, tool := range []string{"message", "telegram", "whatsapp"} {
			d := policy.Decide(toolpolicy.Tool{Name: tool})
			if d.Allowed == sandboxed || sandboxed && layers[d.Layer-1].Number != toolpolicy.NumberSandbox {
				t.Errorf("%s in %s: %+v", tool, key, d)
			}
		}
	}
}
