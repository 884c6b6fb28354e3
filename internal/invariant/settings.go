package invariant

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// settingsProblem returns what is wrong with an agent's settings and what to do, both empty
// when the settings are valid. An agent whose config.yaml is missing or refused answers
// nobody. It reads config.yaml, from the home or as a shared database has it, and
// theclaw.yaml, and changes neither.
func settingsProblem(home layout.Home, a *snapshot.Agent) (what, fix string) {
	id := a.ID
	in := layer.Layers{AgentID: id, Agent: layer.File{Name: "config.yaml", Data: a.Config}}
	var err error
	if a.Config == nil {
		in.Agent.Data, err = os.ReadFile(filepath.Join(home.AgentDir(id), "config.yaml"))
	}
	if err == nil {
		if in.Home, err = agentdir.ReadSettings(home); err == nil {
			_, err = layer.Load(in)
		}
	}
	if err == nil {
		return "", ""
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "there is no config.yaml", "make one with at least the line agent_id: " + id + ", or restore the agent from a backup"
	}
	what, _, _ = strings.Cut(err.Error(), "\n")
	if wrong, ok := errors.AsType[*layer.Error](err); ok {
		what = wrong.Problems[0].String()
	}
	return what, "correct what it names; 'agentctl migrate " + id + "' does it for a directory of an earlier version"
}
