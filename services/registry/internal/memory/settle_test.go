package memory

import (
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/standalone"
)

// A committed digest reaches its file once, whatever was there; a person who
// changed the file after the digest was made loses nothing.
func TestWriteDigest(t *testing.T) {
	home, err := agentdir.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = home.Close() }()
	dir, err := home.Create("a1", agentdir.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "memory/thread-x.md"
	for _, c := range []struct{ what, there, base, want string }{
		{"the base", "old\n", "old\n", "digest\n"},
		{"itself", "digest\n", "old\n", "digest\n"},
		{"a person's change", "old, and mine\n", "old\n", "old, and mine\n\ndigest\n"},
	} {
		if _, err := dir.WriteFile(name, []byte(c.there), ""); err != nil {
			t.Fatal(err)
		}
		m := store.MemoryMark{Layer: name, Text: "digest\n", Base: agentdir.Version([]byte(c.base))}
		if err := writeDigest(t.Context(), standalone.NewFiles(home), "a1", m); err != nil {
			t.Fatal(err)
		}
		if got, _, err := dir.ReadFile(name); err != nil || string(got) != c.want {
			t.Errorf("over %s: %q, %v", c.what, got, err)
		}
	}
	m := store.MemoryMark{Layer: "memory/agent.md", Text: "first\n", Base: agentdir.NoFile}
	if err := writeDigest(t.Context(), standalone.NewFiles(home), "a1", m); err != nil {
		t.Fatal(err)
	}
	if got, _, err := dir.ReadFile(m.Layer); err != nil || string(got) != "first\n" {
		t.Errorf("the first one: %q, %v", got, err)
	}
}

func TestFirstLines(t *testing.T) {
	if got := firstLines("# Usage\n\n  Ask me.\n\n## More\nOr not.\n1\n2\n3\n"); got != "Ask me.\nOr not.\n1\n2" {
		t.Errorf("%q", got)
	}
}
