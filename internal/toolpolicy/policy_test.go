package toolpolicy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/testing/vectors"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// recordedGroups are the tools of each group, as recorded.
func recordedGroups(t *testing.T) map[string][]string {
	t.Helper()
	var file struct{ Groups map[string][]string }
	vectors.Read(t, "tool-policy", &file)
	return file.Groups
}

// different are the recorded vectors that are decided differently here, by the section of the chapter on
// tools that says so.
var different = map[int]string{
	16: "5.3: the layer of sub-agents comes with sub-agents",
	17: "3: allow and also_allow of one scope are refused, and 5.3: layers are not merged, but decided one after the other",
}

type policy struct{ Allow, Deny []string }

func (p *policy) layer() toolpolicy.Layer {
	if p == nil {
		return toolpolicy.Layer{}
	}
	return toolpolicy.Layer{Allow: p.Allow, Deny: p.Deny}
}

// answer is what a vector gives here; nil: there is nothing of the kind.
func answer(t *testing.T, v vectors.Vector) any {
	t.Helper()
	decode := func(into any) {
		if err := json.Unmarshal(v.Input, into); err != nil {
			t.Fatal(err)
		}
	}
	switch word, _, _ := strings.Cut(v.Fn, " "); word {
	case "normalizeToolName":
		var name string
		decode(&name)
		return toolpolicy.Canonical(name)
	case "expandToolGroups":
		var list, out []string
		decode(&list)
		names := slices.Concat(slices.Collect(maps.Values(recordedGroups(t)))...)
		slices.Sort(names)
		names = slices.Compact(names)
		for _, e := range list {
			if e == "*" || !strings.HasPrefix(e, "group:") {
				out = append(out, e)
				continue
			}
			p := toolpolicy.New([]toolpolicy.Layer{{Allow: []string{e}, Deny: []string{"grep", "find", "ls"}}})
			for _, name := range names {
				if p.Decide(toolpolicy.Tool{Name: name}).Allowed {
					out = append(out, name)
				}
			}
		}
		var want []string
		if err := json.Unmarshal(v.Expected, &want); err != nil {
			t.Fatal(err)
		}
		slices.Sort(out)
		if slices.Equal(out, slices.Sorted(slices.Values(want))) { // a set here
			return want
		}
		return out
	case "resolveToolProfilePolicy":
		var name string
		decode(&name)
		layers := toolpolicy.Layers(name, toolpolicy.Scope{}, toolpolicy.Scope{})
		if len(layers) == 0 || len(layers[0].Allow)+len(layers[0].Deny) == 0 {
			return nil
		}
		return map[string][]string{"allow": layers[0].Allow}
	case "isToolAllowedByPolicyName":
		var in struct {
			Tool   string
			Policy *policy
		}
		decode(&in)
		return toolpolicy.New([]toolpolicy.Layer{in.Policy.layer()}).Decide(toolpolicy.Tool{Name: in.Tool}).Allowed
	case "isToolAllowedByPolicies":
		var in struct {
			Tool     string
			Policies []*policy
		}
		decode(&in)
		var layers []toolpolicy.Layer
		for _, p := range in.Policies {
			layers = append(layers, p.layer())
		}
		return toolpolicy.New(layers).Decide(toolpolicy.Tool{Name: in.Tool}).Allowed
	case "resolveSandboxToolPolicyForAgent":
		var in struct {
			Cfg     json.RawMessage
			AgentID string `json:"agentId"`
		}
		decode(&in)
		return sandboxPolicy(t, in.AgentID, in.Cfg)
	}
	return nil
}

// sandboxPolicy is the layer of the sandbox with settings of the home, and where its lists come from.
func sandboxPolicy(t *testing.T, agent string, settings json.RawMessage) any {
	t.Helper()
	home := map[string]any{}
	if err := json.Unmarshal(settings, &home); err != nil {
		t.Fatal(err)
	}
	home["flavor"] = "openclaw"
	data, err := json.Marshal(home)
	if err != nil {
		t.Fatal(err)
	}
	got, err := layer.Load(layer.Layers{
		AgentID: agent, Home: layer.File{Name: "theclaw.json5", Data: data}, Agent: layer.File{Name: "config.yaml", Data: []byte("agent_id: " + agent + "\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	group := config.Conversation{Key: "agent:" + agent + ":telegram:group:-1"}
	sources := map[string]map[string]string{}
	for _, list := range []string{"allow", "deny"} {
		key, source := "tools.sandbox.tools."+list, "global"
		if v, _ := got.Get(key); v.Origin == "flavor openclaw" {
			source = "default"
		}
		sources[list] = map[string]string{"source": source, "key": key}
	}
	for _, l := range got.Config.ToolLayers(group, nil) {
		if l.Number == toolpolicy.NumberSandbox {
			return map[string]any{"allow": l.Allow, "deny": l.Deny, "sources": sources}
		}
	}
	return nil
}

// S4-59, S4-60: the recorded decisions.
func TestVectors(t *testing.T) {
	vectors.Compare(t, "tool-policy", different, answer)
}

// S4-59, S4-60: who decides, by hand.
func TestDecide(t *testing.T) {
	type scope struct {
		Profile                string
		Allow, AlsoAllow, Deny []string
	}
	lists := func(s scope) toolpolicy.Scope {
		return toolpolicy.Scope{Allow: s.Allow, AlsoAllow: s.AlsoAllow, Deny: s.Deny}
	}
	mcp := toolpolicy.Tool{Name: "github__list_issues", Group: toolpolicy.GroupMCP}
	program := toolpolicy.Tool{Name: "resize", Group: toolpolicy.GroupPrograms}
	for _, c := range []struct {
		home, agent scope
		tool        toolpolicy.Tool
		layer       string // empty: it is allowed
		rule        string
	}{
		{scope{}, scope{}, toolpolicy.Tool{Name: "exec"}, "", ""},
		{scope{}, scope{}, toolpolicy.Tool{Name: "apply_patch"}, `profile "theclaw"`, `deny ["apply_patch"]`},
		{scope{}, scope{}, toolpolicy.Tool{Name: "read"}, `profile "theclaw"`, "no entry of allow"},
		{scope{}, scope{AlsoAllow: []string{"read"}}, toolpolicy.Tool{Name: "grep"}, "", ""},
		{scope{}, scope{AlsoAllow: []string{"apply-patch"}}, toolpolicy.Tool{Name: "apply_patch"}, "", ""},
		{scope{}, scope{AlsoAllow: []string{"group:fs"}}, toolpolicy.Tool{Name: "apply_patch"}, "", ""},
		{scope{Profile: "newer"}, scope{AlsoAllow: []string{"exec"}}, toolpolicy.Tool{Name: "exec"}, `profile "newer", which is not known here`, `deny ["*"]`},
		{scope{AlsoAllow: []string{"read"}}, scope{AlsoAllow: []string{"web_fetch"}}, toolpolicy.Tool{Name: "read"}, `profile "theclaw"`, "no entry of allow"},
		{scope{Profile: "coding"}, scope{}, toolpolicy.Tool{Name: "edit"}, "", ""},
		{scope{Profile: "coding"}, scope{Profile: "minimal"}, toolpolicy.Tool{Name: "edit"}, `profile "minimal"`, "no entry of allow"},
		{scope{Profile: "full"}, scope{}, mcp, "", ""},
		{scope{Profile: "coding"}, scope{}, mcp, `profile "coding"`, "no entry of allow"},
		{scope{Profile: "coding"}, scope{AlsoAllow: []string{"group:mcp"}}, mcp, "", ""},
		{scope{Profile: "coding"}, scope{AlsoAllow: []string{"git-hub__*"}}, toolpolicy.Tool{Name: "git_hub__list_issues", Group: toolpolicy.GroupMCP}, "", ""},
		{scope{Profile: "coding"}, scope{AlsoAllow: []string{"git__*"}}, toolpolicy.Tool{Name: "git_hub__list_issues", Group: toolpolicy.GroupMCP}, `profile "coding"`, "no entry of allow"},
		{scope{Profile: "agentclaw"}, scope{}, toolpolicy.Tool{Name: "browser__open", Group: toolpolicy.GroupMCP}, "", ""},
		{scope{Profile: "full", Deny: []string{"group:runtime"}}, scope{Allow: []string{"exec"}}, toolpolicy.Tool{Name: "exec"}, "home", `deny ["group:runtime"]`},
		{scope{Profile: "full"}, scope{Deny: []string{"group:runtime"}}, program, "agent", `deny ["group:runtime"]`},
		{scope{Profile: "full"}, scope{Deny: []string{"exec"}}, program, "", ""},
		{scope{Profile: "coding"}, scope{}, program, "", ""},
		{scope{Profile: "coding"}, scope{Deny: []string{"group:programs"}}, program, "agent", `deny ["group:programs"]`},
		{scope{}, scope{}, program, `profile "theclaw"`, "no entry of allow"},
		{scope{}, scope{AlsoAllow: []string{"resize"}}, program, "", ""},
		{scope{Profile: "full"}, scope{Allow: []string{"read"}}, toolpolicy.Tool{Name: "write"}, "agent", "no entry of allow"},
		{scope{Profile: "full", Allow: []string{"group:fs"}}, scope{}, toolpolicy.Tool{Name: "exec"}, "home", "no entry of allow"},
		{scope{Profile: "full", Allow: []string{"", " "}}, scope{}, toolpolicy.Tool{Name: "exec"}, "", ""},
		{scope{Profile: "full"}, scope{Deny: []string{"READ"}}, toolpolicy.Tool{Name: "ls"}, "agent", `deny ["READ"]`},
		{scope{Profile: "full"}, scope{Deny: []string{"*"}}, mcp, "agent", `deny ["*"]`},
		{scope{Profile: "messaging"}, scope{}, toolpolicy.Tool{Name: "sessions_spawn"}, `profile "messaging"`, "no entry of allow"},
		{scope{Profile: "full", AlsoAllow: []string{"read"}}, scope{}, toolpolicy.Tool{Name: "exec"}, "", ""},
		{scope{Profile: "full"}, scope{AlsoAllow: []string{"read"}, Deny: []string{"read"}}, toolpolicy.Tool{Name: "read"}, "agent", `deny ["read"]`},
	} {
		layers := toolpolicy.Layers(cmp.Or(c.agent.Profile, c.home.Profile, toolpolicy.Theclaw), lists(c.home), lists(c.agent))
		got := toolpolicy.New(layers).Decide(c.tool)
		name := ""
		if got.Layer > 0 {
			name = layers[got.Layer-1].Name
		}
		if got.Allowed != (c.layer == "") || name != c.layer || got.Rule != c.rule {
			t.Errorf("%s, home %+v, agent %+v: %+v by %q, want %q by %q", c.tool.Name, c.home, c.agent, got, name, c.rule, c.layer)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, list := range [][]string{nil, {"exec", "group:fs", "GROUP:Web", "github__*", "*", "", "no_such_tool", "apply-patch"}} {
		if p := toolpolicy.Check(list); p != "" {
			t.Errorf("%q: %s", list, p)
		}
	}
	for _, c := range []struct {
		list []string
		want string
	}{
		{[]string{"group:nosuch"}, "there is no group"},
		{[]string{"a b"}, "is no tool"},
		{[]string{"é"}, "is no tool"},
		{[]string{strings.Repeat("x", 129)}, "is no tool"},
		{slices.Repeat([]string{"exec"}, 201), "201 entries, and 200 are the most"},
	} {
		if p := toolpolicy.Check(c.list); !strings.Contains(p, c.want) {
			t.Errorf("%.60q: %q, want %q", c.list, p, c.want)
		}
	}
}

// A set of 120 tools over 9 layers.
func BenchmarkDecide(b *testing.B) {
	var layers []toolpolicy.Layer
	for range 9 {
		layers = append(layers, toolpolicy.Layer{Allow: []string{"group:fs", "group:web", "exec", "*__*"}, Deny: []string{"cron", "x__*"}})
	}
	list := slices.Clone(tools)
	for n := len(list); n < 120; n++ {
		list = append(list, toolpolicy.Tool{Name: fmt.Sprintf("server__tool_%d", n), Group: toolpolicy.GroupMCP})
	}
	b.ReportAllocs()
	for b.Loop() {
		p := toolpolicy.New(layers)
		for _, tool := range list {
			p.Decide(tool)
		}
	}
}
