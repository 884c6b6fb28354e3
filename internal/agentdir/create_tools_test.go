package agentdir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// S0-103, S4-59: the tools that a new agent is given are in its settings, unless those of the home
// choose the tools of agents.
func TestToolsOfANewAgent(t *testing.T) {
	for _, c := range []struct{ name, home, want string }{
		{"no settings of the home", "", "coding config.yaml"},
		{"other settings", "run: {timeout: 5m}\n", "coding config.yaml"},
		{"another flavor", "flavor: openclaw\n", "full flavor openclaw"},
		{"a profile", "tools: {profile: minimal}\n", "minimal theclaw.yaml"},
		{"a list", "tools: {deny: [exec]}\n", "theclaw default"},
		{"a list of the agent", "agents: {list: [{id: a1, tools: {allow: [exec]}}]}\n", "theclaw default"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "h")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "theclaw.yaml"), []byte(c.home), 0o600); err != nil {
				t.Fatal(err)
			}
			h, err := OpenHome(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = h.Close() }()
			d, err := h.Create("a1", Spec{Profile: "coding", AlsoAllow: []string{"web_fetch"}})
			if err != nil {
				t.Fatal(err)
			}
			text, _, err := d.ReadFile("config.yaml")
			if err != nil || strings.Contains(string(text), "coding") != strings.HasPrefix(c.want, "coding") {
				t.Errorf("%v\n%s", err, text)
			}
			a, err := h.Load("a1")
			if err != nil {
				t.Fatal(err)
			}
			if v, err := a.Get("tools.profile"); err != nil || !strings.HasPrefix(v.Value+" "+v.Origin, c.want) {
				t.Errorf("%+v %v", v, err)
			}
		})
	}
	h, err := OpenHome(filepath.Join(t.TempDir(), "h"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	if _, err := h.Create("a1", Spec{Profile: "no such"}); err == nil {
		t.Error("an agent with a profile that does not exist was made")
	}
}
