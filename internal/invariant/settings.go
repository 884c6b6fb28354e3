package invariant

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// settings: an agent whose config.yaml cannot be read, or is refused, answers
// nobody. Where its inbox should be elsewhere, that is not looked at then.
func (c *check) settings(a *snapshot.Agent) {
	in := layer.Layers{AgentID: a.ID, Agent: layer.File{Name: "config.yaml"}}
	var err error
	if in.Agent.Data, err = os.ReadFile(filepath.Join(a.Dir, "config.yaml")); err == nil {
		if home, err := os.ReadFile(c.path.DefaultsFile()); err == nil {
			in.Home = layer.File{Name: layout.DefaultsName, Data: home}
		}
		_, err = layer.Load(in)
	}
	if err == nil {
		return
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	fix := "put right what it names; 'agentctl migrate " + a.ID + "' does it for a directory of an earlier version"
	if errors.Is(err, fs.ErrNotExist) {
		what = "there is no config.yaml"
		fix = "make one with at least the line agent_id: " + a.ID + ", or restore the agent from a backup"
	}
	if wrong, ok := errors.AsType[*layer.Error](err); ok {
		what = wrong.Problems[0].String()
	}
	c.findings = append(c.findings, Finding{
		Invariant: "config", Agent: a.ID, What: "the settings cannot be read: " + what, Fix: fix, Severity: Violation,
	})
}
