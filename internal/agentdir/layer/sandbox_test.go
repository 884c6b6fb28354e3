package layer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/sessionkey"
)

// sandboxDifferent are the recorded vectors of the sandbox that are decided differently here, by the section
// of the chapter on tools that says so.
var sandboxDifferent = map[int]string{
	1:  "3: the scope has one key, sandbox.scope, and no older one besides it",
	11: "3: the mode of the flavor openclaw is non-main",
	17: "3: the mode of the flavor openclaw is non-main; 5.7: the keys of docker are for its driver, which is not here yet",
	18: "5.7: the keys of docker are for its driver, which is not here yet",
	19: "5.7: the arguments of docker are of its driver, which is not here yet",
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
func sandboxAnswer(t *testing.T, fn string, input json.RawMessage) any {
	t.Helper()
	var in struct {
		Mode, Scope *string
		SessionKey  string
	}
	var key string
	if err := json.Unmarshal(input, &in); err != nil && json.Unmarshal(input, &key) != nil {
		t.Fatal(err)
	}
	yaml := ""
	if in.Mode != nil {
		yaml = "mode: '" + *in.Mode + "'"
	} else if in.Scope != nil {
		yaml = "scope: " + *in.Scope
	}
	switch fn {
	case "resolveSandboxScope":
		return sandboxed(t, yaml).Sandbox.Scope
	case "resolveSandboxRuntimeStatus.sandboxed":
		return sandboxed(t, yaml).SandboxAt(config.Conversation{Key: in.SessionKey}).Level != config.SandboxOff
	case "resolveSandboxScopeKey":
		return config.ScopeKey(*in.Scope, sessionkey.AgentID(strings.Split(in.SessionKey+"::", ":")[1]), config.Conversation{Key: in.SessionKey})
	case "slugifySessionKey":
		return config.Slug(key)
	}
	return nil
}

// S4-08, S4-09, S4-52, S4-74, S4-75: the recorded decisions about sandboxes.
func TestSandboxVectors(t *testing.T) {
	b, err := os.ReadFile("testdata/sandbox.json")
	var recorded struct {
		Vectors []struct {
			Fn              string
			Input, Expected json.RawMessage
		}
	}
	if err == nil {
		err = json.Unmarshal(b, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	passed, listed := 0, 0
	for i, v := range recorded.Vectors {
		var want any
		if err := json.Unmarshal(v.Expected, &want); err != nil {
			t.Fatal(err)
		}
		got := sandboxAnswer(t, v.Fn, v.Input)
		same := reflect.DeepEqual(got, want)
		switch why, is := sandboxDifferent[i]; {
		case same && is:
			t.Errorf("vector %d passes, and is listed as different: %s", i, why)
		case same:
			passed++
		case is:
			listed++
		default:
			t.Errorf("vector %d, %s %s: got %v, want %v", i, v.Fn, v.Input, got, want)
		}
	}
	fmt.Printf("sandbox passed=%d listed=%d total=%d\n", passed, listed, len(recorded.Vectors))
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
