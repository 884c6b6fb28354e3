package agentdir

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
)

// WorkspaceSpec is what the working directory of an agent's tools depends on.
type WorkspaceSpec struct {
	Home, AgentDir string // directories
	UserHome       string // what `~/` stands for
	ID, Flavor     string
	Default        bool   // the agent is the default one
	Configured     string // the workspace of its entry in agents.list
	Defaults       string // agents.defaults.workspace
}

// Path returns the directory: the configured one, for the default agent that of
// agents.defaults, else that of the flavor: openclaw has one for each agent in the home, the
// others the directory workdir of the agent. Empty: it begins with `~/` and there is no
// UserHome.
func (w WorkspaceSpec) Path() string {
	path := w.Configured
	if path == "" && w.Default {
		path = w.Defaults
	}
	switch rest, tilde := strings.CutPrefix(path, "~/"); {
	case tilde && w.UserHome == "":
		return ""
	case tilde:
		return filepath.Join(w.UserHome, rest)
	case path != "":
		return filepath.Clean(path)
	case w.Flavor != "openclaw":
		return filepath.Join(w.AgentDir, "workdir")
	case w.Default:
		return filepath.Join(w.Home, "workspace")
	}
	return filepath.Join(w.Home, "workspace-"+w.ID)
}

// AgentDirOf returns the directory of an agent: the configured one, else that below agents of
// the home.
func AgentDirOf(home, id, configured string) string {
	if configured != "" {
		return filepath.Clean(configured)
	}
	return filepath.Join(home, "agents", id)
}

// resolveWorkspace sets the working directory. One that the settings name must not contain
// files of the home, which tools are not to see.
func (a *Agent) resolveWorkspace(loaded *layer.Loaded) error {
	home := a.home.Path()
	w := WorkspaceSpec{Home: home, AgentDir: a.Path, UserHome: a.home.UserHome, ID: a.ID, Flavor: a.Config.Flavor, Configured: loaded.Workspace.Value, Default: loaded.IsMain}
	a.Workspace = w.Path()
	if a.Workspace == a.Workdir() {
		return nil
	}
	value := loaded.Workspace
	if value.Key == "" {
		value = layer.Value{Key: "workspace", Origin: "flavor " + a.Config.Flavor}
	}
	value.Value = a.Workspace
	a.Values = append(a.Values, value)
	if value.Origin == "flavor "+a.Config.Flavor {
		return nil
	}
	fail := func(text string) error {
		return &layer.Error{Problems: []layer.Problem{{Key: "workspace", Text: text, Origin: value.Origin}}}
	}
	switch {
	case a.Workspace == "":
		return fail("there is no home directory for ~/; write an absolute directory")
	case inside(home, a.Workspace):
		return fail(fmt.Sprintf("%s contains the home %s; choose another directory", a.Workspace, home))
	case inside(a.Workspace, home) && !inside(a.Workspace, filepath.Join(home, "workspace")) && !strings.HasPrefix(a.Workspace, filepath.Join(home, "workspace-")):
		return fail(fmt.Sprintf("%s is among the files of the home; choose a directory outside of it, or %s", a.Workspace, filepath.Join(home, "workspace-"+a.ID)))
	}
	return nil
}

// checkBinds refuses binds of containers with which programs would read the home.
func (a *Agent) checkBinds(loaded *layer.Loaded) error {
	for _, b := range a.Config.Sandbox.Docker.Binds {
		if p, home := filepath.Clean(config.BindSource(b)), a.home.Path(); inside(p, home) || inside(home, p) {
			return loaded.Problem("sandbox.docker.binds", fmt.Sprintf("sandbox.docker.binds: %s holds the home %s or is in it; choose another path", p, home))
		}
	}
	return nil
}

// inside reports whether a path is a directory or below it.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// checkDirs refuses an agent_dir that is not the directory of the agent, and paths of MCP servers with which they
// would read the home.
func (h *Home) checkDirs(parsed *layer.Home) error {
	for _, e := range parsed.Settings.Agents {
		if own := h.AgentDir(e.ID); AgentDirOf(h.Path(), e.ID, e.AgentDir) != own {
			return parsed.AgentDirProblem(e.ID, fmt.Sprintf("the directory of agent %s is %s; remove agent_dir", e.ID, own))
		}
	}
	for _, s := range parsed.Settings.Servers {
		for _, p := range s.Paths {
			if inside(p, h.Path()) || inside(h.Path(), p) {
				return parsed.ServerProblem(s.Name, fmt.Sprintf("mcp.servers.%s: paths: %s holds the home %s or is in it; choose another path", s.Name, p, h.Path()))
			}
		}
	}
	return nil
}
