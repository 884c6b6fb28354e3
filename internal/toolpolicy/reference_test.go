package toolpolicy_test

import (
	"fmt"
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
			if t.Group == g || t.Group == "" && slices.Contains(r.groups[g], t.Name) {
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
		toolpolicy.Tool{Name: "read", Group: toolpolicy.GroupMCP}, toolpolicy.Tool{Name: "notes__add", Group: toolpolicy.GroupPlugins})
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

// S4-59, S4-60, S4-61: a million random policies decide as the second implementation does, and a
// layer more never adds a tool.
func TestRandomPolicies(t *testing.T) {
	ref := reference{groups: recorded(t).Groups}
	ref.groups["group:memory"] = append(ref.groups["group:memory"], "memory_save")
	ref.groups["group:search"] = []string{"grep", "find", "ls"}
	r := rand.New(rand.NewPCG(25, 1))
	decided, allowed := 0, 0
	for decided < 1_000_000 {
		layers := make([]toolpolicy.Layer, r.IntN(4)+1)
		var left []map[string]bool
		for i := range layers {
			layers[i] = toolpolicy.Layer{Allow: randomList(r, 6), Deny: randomList(r, 3)}
			left = append(left, ref.left(layers[i], tools))
		}
		policy := toolpolicy.New(layers)
		for _, tool := range tools {
			want, first := true, 0
			for i, l := range left {
				if !l[tool.Name+" "+tool.Group] {
					want, first = false, i+1
					break
				}
			}
			got := policy.Decide(tool)
			if got.Allowed != want || got.Layer != first || (got.Rule == "") != want {
				t.Fatalf("%+v over %+v: %+v, want %v by layer %d", tool, layers, got, want, first)
			}
			decided++
			if !want {
				continue
			}
			allowed++
		}
		fewer := toolpolicy.New(layers[1:])
		for _, tool := range tools {
			if policy.Decide(tool).Allowed && !fewer.Decide(tool).Allowed {
				t.Fatalf("%+v is added by the first layer of %+v", tool, layers)
			}
		}
	}
	if allowed == 0 || allowed == decided {
		t.Fatalf("%d of %d are allowed: the policies say nothing", allowed, decided)
	}
	fmt.Printf("policy decided=%d allowed=%d\n", decided, allowed)
}
