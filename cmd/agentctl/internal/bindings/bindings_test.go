package bindings

import (
	"testing"

	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func guild(agent, id string) *registry.Binding {
	return &registry.Binding{AgentId: agent, Match: &registry.BindingMatch{Channel: "discord", GuildId: id}}
}

// S4-10: a removal that is made again after another change removes the binding that had the
// number, wherever it is now, and nothing when it is gone.
func TestFind(t *testing.T) {
	a, b, c := guild("a1", "1"), guild("a1", "2"), guild("a1", "3")
	for _, k := range []struct {
		name string
		all  []*registry.Binding
		n    int
		was  *registry.Binding
		want int
	}{
		{"at first", []*registry.Binding{a, b, c}, 2, nil, 1},
		{"unchanged", []*registry.Binding{a, guild("a1", "2"), c}, 2, b, 1},
		{"one was inserted before it", []*registry.Binding{c, a, b}, 2, b, 2},
		{"one was removed before it", []*registry.Binding{b, c}, 2, b, 0},
		{"it is the last one, and the list is shorter", []*registry.Binding{b}, 2, b, 0},
		{"two are equal", []*registry.Binding{b, a, b}, 3, b, 2},
	} {
		if got, err := find(k.all, k.n, k.was); got != k.want || err != nil {
			t.Errorf("%s: %d, %v; want %d", k.name, got, err, k.want)
		}
	}
	for _, was := range []*registry.Binding{nil, b} {
		if _, err := find([]*registry.Binding{a}, 2, was); err == nil || fault.ExitCode(err) != 1 || fault.From(err).Fix == "" {
			t.Errorf("%v: %v", was, err)
		}
	}
}
