package config

import (
	"testing"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S4-05: the identity is in the prompt, with IDENTITY.md and without.
func TestAddIdentity(t *testing.T) {
	files := []*registryv1.ContextFile{{Name: "IDENTITY.md", Content: "# Amy\n"}, {Name: "memory/agent.md", Content: "x"}}
	got := AddIdentity(files, "Max", "calm", "")
	if len(got) != 2 || got[0].GetContent() != "# Amy\n\nName: Max, Theme: calm\n" || got[1] != files[1] || files[0].GetContent() != "# Amy\n" {
		t.Errorf("%v of %v", got, files)
	}
	if got := AddIdentity(files[1:], "", "", "*"); len(got) != 2 || got[0].GetName() != "IDENTITY.md" || got[0].GetContent() != "Emoji: *\n" {
		t.Errorf("%v", got)
	}
	if got := AddIdentity(files, "", "", ""); got[0] != files[0] {
		t.Errorf("%v", got)
	}
}
