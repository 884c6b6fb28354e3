package agentdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/safefile"
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

// workspaceFiles are the files of a new workspace of the flavor openclaw. MEMORY.md is none of them: the agent
// makes it.
var workspaceFiles = []string{"AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md", "BOOTSTRAP.md"}

// MakeWorkspace makes the working directory of an agent of the flavor openclaw when there is none: with the files that
// describe the agent and its task, and an empty git repository. It changes no directory that exists, and makes none
// with skip_bootstrap: a tool that is used makes it. made: it is complete on the disk now.
func (a *Agent) MakeWorkspace() (made bool, err error) {
	if a.Config.Flavor != "openclaw" || a.Config.SkipBootstrap {
		return false, nil
	}
	if _, err := os.Lstat(a.Workspace); !errors.Is(err, fs.ErrNotExist) {
		return false, err // nil: there is one
	}
	parent := filepath.Dir(a.Workspace)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return false, fmt.Errorf("make a workspace: %w", err)
	}
	// One that was killed in the middle left this, and does not become a workspace.
	unfinished := filepath.Join(parent, ".theclaw-workspace-"+a.ID)
	if err := os.RemoveAll(unfinished); err != nil {
		return false, fmt.Errorf("make a workspace: %w", err)
	}
	if err := fillWorkspace(unfinished); err != nil {
		return false, errors.Join(fmt.Errorf("make a workspace: %w", err), os.RemoveAll(unfinished))
	}
	if err := os.Rename(unfinished, a.Workspace); err != nil {
		return false, errors.Join(fmt.Errorf("make a workspace: %w", err), os.RemoveAll(unfinished))
	}
	return true, nil
}

func fillWorkspace(dir string) (err error) {
	for _, d := range []string{"", ".git", ".git/objects", ".git/refs"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, name := range workspaceFiles {
		text, err := templates.ReadFile("templates/workspace/" + name)
		if err != nil {
			return err
		}
		if err := safefile.Replace(root, name, text); err != nil {
			return err
		}
	}
	if err := safefile.Replace(root, ".git/config", []byte("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n")); err != nil {
		return err
	}
	return safefile.Replace(root, ".git/HEAD", []byte("ref: refs/heads/main\n"))
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
