package toolpolicy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/toolpolicy"
)

// reference decides as the acceptance rows say it (S4-59 to S4-61), in another way than the
// package: it expands each layer to the set of tools that are left of all there are.
type reference struct{ groups map[string][]string }

// expanded are the tools that an entry names.
func (r reference) expanded(e string, all []toolpolicy.Tool) (out []toolpolicy.Tool) {
	e = strings.TrimSpace(e)
	if e == "" {
		return nil
	}
	if g := strings.ToLower(e); strings.HasPrefix(g, "group:") {
		for _, t := range all {
			if t.Group == g || t.Group == "" && slices.Contains(r.groups[g], t.Name) || t.Group == "group:programs" && g == "group:runtime" {
				out = append(out, t)
			}
		}
		return out
	}
	e = strings.ReplaceAll(strings.ToLower(e), "-", "_")
	switch e {
	case "bash", "bash_exec", "shell":
		e = "exec"
	case "file_read":
		e = "read"
	case "file_write":
		e = "write"
	case "message_send":
		e = "message"
	case "remember":
		e = "memory_save"
	}
	for _, t := range all {
		// The names have no character that path.Match treats specially, and no slash.
		if ok, err := path.Match(e, t.Name); err == nil && ok {
			out = append(out, t)
		}
	}
	return out
}

// left are the tools of one layer.
func (r reference) left(l toolpolicy.Layer, all []toolpolicy.Tool) map[string]bool {
	universe := append(slices.Clone(all), toolpolicy.Tool{Name: "read"}, toolpolicy.Tool{Name: "exec"})
	search := []string{"grep", "find", "ls"}
	list := func(entries []string, deny bool) (names map[string]bool, any bool) {
		names = map[string]bool{}
		for _, e := range entries {
			any = any || strings.TrimSpace(e) != ""
			for _, t := range r.expanded(e, universe) {
				names[t.Name+" "+t.Group] = true
				if t == (toolpolicy.Tool{Name: "read"}) {
					for _, s := range search {
						names[s+" "] = true
					}
				}
				if t == (toolpolicy.Tool{Name: "exec"}) && !deny {
					names["apply_patch "] = true
				}
			}
		}
		return names, any
	}
	allowed, limited := list(l.Allow, false)
	denied, _ := list(l.Deny, true)
	out := map[string]bool{}
	for _, t := range all {
		k := t.Name + " " + t.Group
		out[k] = (!limited || allowed[k]) && !denied[k]
	}
	return out
}

// tools are what the comparisons decide on.
var tools = func() (out []toolpolicy.Tool) {
	for _, n := range strings.Fields("exec process read write edit apply_patch grep find ls web_fetch web_search http_request message memory_get memory_save session_status sessions_list sessions_spawn image cron browser") {
		out = append(out, toolpolicy.Tool{Name: n})
	}
	return append(out, toolpolicy.Tool{Name: "github__list_issues", Group: toolpolicy.GroupMCP}, toolpolicy.Tool{Name: "fs__read", Group: toolpolicy.GroupMCP},
		toolpolicy.Tool{Name: "read", Group: toolpolicy.GroupMCP}, toolpolicy.Tool{Name: "notes__add", Group: toolpolicy.GroupPlugins}, toolpolicy.Tool{Name: "resize", Group: toolpolicy.GroupPrograms})
}()

// entries are those of the random layers.
var entries = func() (out []string) {
	for _, t := range tools {
		out = append(out, t.Name)
	}
	out = append(out, toolpolicy.Groups()...)
	return append(out, "*", "*read*", "github__*", "*__*", "web_*", "s*s*s", "r*d", "*a", "", " ", " EXEC ", "Bash", "bash_exec", "apply-patch", "file_read", "File-Write", "remember", "message-send", "GROUP:FS", "no_such_tool")
}()

func randomList(r *rand.Rand, most int) (out []string) {
	for range r.IntN(most + 1) {
		out = append(out, entries[r.IntN(len(entries))])
	}
	return out
}

// settings are all that decides on tools for one turn.
type settings struct {
	profile             string
	home, agent         toolpolicy.Scope
	homeBy, agentBy     toolpolicy.Providers
	conversation, inBox *toolpolicy.Layer
	provider, model     string
}

// numbered are the tools that one layer leaves.
type numbered struct {
	number int
	left   map[string]bool
}

// profiles are those of the chapter on tools, 5.3; nil allows everything.
var profiles = map[string][]string{
	"theclaw": {"exec"}, "minimal": {"session_status"}, "full": nil,
	"coding":    {"group:fs", "group:runtime", "group:sessions", "group:memory", "image"},
	"messaging": {"group:messaging", "sessions_list", "sessions_history", "sessions_send", "session_status"},
	"agentclaw": strings.Fields("exec read write web_search web_fetch ask_user remember set_reminder schedule send_file python http_request browser__* comfyui__* plan_task"),
}

// profile is what a profile leaves: also_allow of the agent counts, else that of the home.
func (r reference) profile(number int, name string, home, agent []string) numbered {
	also := agent
	if len(also) == 0 {
		also = home
	}
	l := toolpolicy.Layer{}
	if profiles[name] != nil {
		l.Allow = append(slices.Clone(profiles[name]), also...)
	}
	// The profile theclaw has one tool, although exec allows apply_patch.
	if patch := (toolpolicy.Tool{Name: "apply_patch"}); name == "theclaw" && !slices.ContainsFunc(also, func(e string) bool { return slices.Contains(r.expanded(e, []toolpolicy.Tool{patch}), patch) }) {
		l.Deny = []string{"apply_patch"}
	}
	return numbered{number, r.left(l, tools)}
}

// lists is what the lists of a scope leave: also_allow is added to allow, or to everything.
func (r reference) lists(number int, allow, also, deny []string) numbered {
	l := toolpolicy.Layer{Allow: allow, Deny: deny}
	if len(also) > 0 {
		if len(allow) == 0 {
			l.Allow = []string{"*"}
		}
		l.Allow = append(slices.Clone(l.Allow), also...)
	}
	return numbered{number, r.left(l, tools)}
}

// entry is the entry of a model, else that of its provider.
func entry(by toolpolicy.Providers, provider, model string) (e toolpolicy.Provider, ok bool) {
	if e, ok = by[provider+"/"+model]; !ok {
		e, ok = by[provider]
	}
	return e, ok
}

// layers are those that exist for a turn, one after the other as the chapter counts them.
func (r reference) layers(s settings) (out []numbered) {
	out = append(out, r.profile(1, s.profile, s.home.AlsoAllow, s.agent.AlsoAllow))
	h, ofHome := entry(s.homeBy, s.provider, s.model)
	a, ofAgent := entry(s.agentBy, s.provider, s.model)
	switch {
	case a.Profile != "":
		out = append(out, r.profile(2, a.Profile, h.AlsoAllow, a.AlsoAllow))
	case h.Profile != "":
		out = append(out, r.profile(2, h.Profile, h.AlsoAllow, a.AlsoAllow))
	}
	out = append(out, r.lists(3, s.home.Allow, s.home.AlsoAllow, s.home.Deny))
	if ofHome {
		out = append(out, r.lists(4, h.Allow, h.AlsoAllow, h.Deny))
	}
	out = append(out, r.lists(5, s.agent.Allow, s.agent.AlsoAllow, s.agent.Deny))
	if ofAgent {
		out = append(out, r.lists(6, a.Allow, a.AlsoAllow, a.Deny))
	}
	for number, l := range map[int]*toolpolicy.Layer{7: s.conversation, 8: s.inBox} {
		if l != nil {
			out = append(out, r.lists(number, l.Allow, nil, l.Deny))
		}
	}
	slices.SortFunc(out, func(a, b numbered) int { return a.number - b.number })
	return out
}

// policies are the layers of the package for the same turn.
func (s settings) policies() []toolpolicy.Layer {
	layers := toolpolicy.Layers(s.profile, s.home, s.agent)
	layers = append(layers, toolpolicy.ProviderLayers(s.homeBy, s.agentBy)...)
	for number, l := range map[int]*toolpolicy.Layer{toolpolicy.NumberConversation: s.conversation, toolpolicy.NumberSandbox: s.inBox} {
		if l != nil {
			layers = append(layers, toolpolicy.Layer{Number: number, Allow: l.Allow, Deny: l.Deny})
		}
	}
	slices.SortStableFunc(layers, func(a, b toolpolicy.Layer) int { return a.Number - b.Number })
	return toolpolicy.ForModel(layers, s.provider, s.model)
}

func randomSettings(r *rand.Rand) settings {
	names := slices.Sorted(maps.Keys(profiles))
	scope := func() (s toolpolicy.Scope) {
		switch r.IntN(4) {
		case 0:
			s.Allow = randomList(r, 8)
		case 1:
			s.AlsoAllow = randomList(r, 4)
		}
		s.Deny = randomList(r, 2)
		return s
	}
	providers := func() toolpolicy.Providers {
		out := toolpolicy.Providers{}
		for _, key := range []string{"openai", "openai/gpt-5", "Anthropic", "openrouter/a/b"} {
			if r.IntN(3) > 0 {
				continue
			}
			s := scope()
			p := toolpolicy.Provider{Allow: s.Allow, AlsoAllow: s.AlsoAllow, Deny: s.Deny}
			if r.IntN(2) == 0 {
				p.Profile = names[r.IntN(len(names))]
			}
			out[key] = p
		}
		return out
	}
	layer := func() *toolpolicy.Layer {
		if r.IntN(2) == 0 {
			return nil
		}
		s := scope()
		return &toolpolicy.Layer{Allow: s.Allow, Deny: s.Deny}
	}
	model := [][2]string{{"openai", "gpt-5"}, {"openai", "gpt-4"}, {"Anthropic", "x"}, {"openrouter", "a/b"}, {"offline", ""}}[r.IntN(5)]
	return settings{
		profile: names[r.IntN(len(names))], home: scope(), agent: scope(), homeBy: providers(), agentBy: providers(),
		conversation: layer(), inBox: layer(), provider: model[0], model: model[1],
	}
}

// S4-59, S4-60, S4-61: a million random decisions over the eight layers are those of the second implementation, by
// the same layer, and a layer more never adds a tool.
func TestRandomPolicies(t *testing.T) {
	ref := reference{groups: recordedGroups(t)}
	ref.groups["group:memory"] = append(ref.groups["group:memory"], "memory_save")
	ref.groups["group:search"] = []string{"grep", "find", "ls"}
	r := rand.New(rand.NewPCG(25, 1))
	decided, by := 0, map[int]int{}
	for decided < 1_000_000 {
		s := randomSettings(r)
		layers, want := s.policies(), ref.layers(s)
		policy, fewer := toolpolicy.New(layers), layers
		if n := r.IntN(len(layers)); len(layers) > 0 {
			fewer = slices.Delete(slices.Clone(layers), n, n+1)
		}
		less := toolpolicy.New(fewer)
		for _, tool := range tools {
			first := 0
			for _, l := range want {
				if !l.left[tool.Name+" "+tool.Group] {
					first = l.number
					break
				}
			}
			got, number := policy.Decide(tool), 0
			if got.Layer > 0 {
				number = layers[got.Layer-1].Number
			}
			if got.Allowed != (first == 0) || number != first || (got.Rule == "") != got.Allowed {
				t.Fatalf("%+v over %+v: %+v by layer %d, want layer %d", tool, s, got, number, first)
			}
			if got.Allowed && !less.Decide(tool).Allowed {
				t.Fatalf("%+v is added by a layer of %+v", tool, layers)
			}
			decided++
			by[first]++
		}
	}
	for number := range 9 {
		if by[number] == 0 {
			t.Errorf("layer %d decides nothing: the policies say nothing", number)
		}
	}
	fmt.Printf("policy decided=%d allowed=%d\n", decided, by[0])
}
