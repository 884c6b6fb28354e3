package prompt_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/prompt"
)

// texts is a source of the parts that it is.
type texts []prompt.Part

func (t texts) Parts(*prompt.Scope) []prompt.Part { return slices.Clone(t) }

// Stable parts come first, in the order of the sources; messages come last; a part without
// a text leaves no trace.
func TestSourcesInOrder(t *testing.T) {
	list := prompt.Standard(
		texts{{Name: "clock", Text: "\nnoon "}, {Name: "blank", Stable: true, Text: " \n"}},
		texts{{Name: "skills", Stable: true, Text: "## Skills"}},
	)
	p := list.Build(scope())
	var names []string
	for _, part := range p.Parts() {
		names = append(names, part.Name)
	}
	want := "IDENTITY.md, memory/agent.md, memory/user-tui-main-alice.md, memory/thread-threads%2Fpeers%2Ftui-main-alice.md, tools, conversation, skills, clock, message 1, message 2, message 5 (inbound), turn 1, turn 2"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("parts are\n%s\nwant\n%s", got, want)
	}
	if !strings.HasSuffix(p.System, "\n\n## Skills\n\nnoon") {
		t.Errorf("the system text ends with %q", p.System[len(p.System)-40:])
	}
}

// Every standard part says why it is there, and nothing that a message changes is in front
// of what it does not change.
func TestStandardParts(t *testing.T) {
	for name, s := range scopes() {
		stable := true
		p := prompt.Standard().Build(s)
		for _, part := range p.Parts() {
			if part.Why == "" || part.Name == "" || part.Role == "" {
				t.Errorf("%s: part %q of %q has no name, no role or no reason", name, part.Name, part.Role)
			}
			if part.Stable && !stable || part.Stable != (part.Role == model.RoleSystem) {
				t.Errorf("%s: part %s is stable: %v", name, part.Name, part.Stable)
			}
			stable = part.Stable
		}
	}
	// What another message, round or peer's turn brings leaves the stable parts as they are.
	a, b := scope(), scope()
	b.Turn, b.Tail, b.Inbound.ID, b.Inbound.Content = nil, b.Tail[1:], 9, "something else"
	if x, y := prompt.Standard().Build(a), prompt.Standard().Build(b); x.System != y.System {
		t.Errorf("another message changes the system text:\n%s\n%s", x.System, y.System)
	}
}
