package shell

import (
	"encoding/json"
	"testing"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// SECURITY S5: an approval replayed with other words, another directory, the network, other names
// in the environment or another call is for another digest; values of variables are not part of it.
func TestDigest(t *testing.T) {
	command := sandbox.Command{Shell: "ls", Workdir: "/w", Env: map[string]string{"A": "1"}}
	call := toolset.Call{Name: Name, Args: json.RawMessage(`{"command":"ls"}`)}
	seen := map[string]string{digest(call, command): "the first"}
	add := func(what string, change func(*toolset.Call, *sandbox.Command)) {
		t.Helper()
		other, to := call, command
		change(&other, &to)
		d := digest(other, to)
		if was, there := seen[d]; there {
			t.Errorf("%s has the digest of %s", what, was)
		}
		seen[d] = what
	}
	add("other words", func(_ *toolset.Call, c *sandbox.Command) { c.Shell = "ls -l" })
	add("another directory", func(_ *toolset.Call, c *sandbox.Command) { c.Workdir = "/w2" })
	add("words that move between the parts", func(_ *toolset.Call, c *sandbox.Command) { c.Shell, c.Workdir = "ls\n2:/w", "" })
	add("the network", func(_ *toolset.Call, c *sandbox.Command) { c.Network = true })
	add("another variable", func(_ *toolset.Call, c *sandbox.Command) { c.Env = map[string]string{"A": "1", "B": ""} })
	add("another tool", func(c *toolset.Call, _ *sandbox.Command) { c.Name = "python" })
	add("other arguments", func(c *toolset.Call, _ *sandbox.Command) {
		c.Args = json.RawMessage(`{"command":"ls","timeout_seconds":1}`)
	})
	command.Env = map[string]string{"A": "2"}
	if digest(call, command) != digest(call, sandbox.Command{Shell: "ls", Workdir: "/w", Env: map[string]string{"A": "1"}}) {
		t.Error("the value of a variable is part of the digest")
	}
}
