package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/outputdir"
	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// SpillDir is where the rest of a long output goes, in the working directory.
const SpillDir = outputdir.Dir

type arguments struct {
	Command    string   `json:"command"`
	Comment    string   `json:"comment"`
	Cwd        string   `json:"cwd"`
	Timeout    *float64 `json:"timeout_seconds"`
	Background bool     `json:"background"`
	Yield      *float64 `json:"yield_seconds"`
	Elevated   bool     `json:"elevated"`
}

// program is a call that was read: a program to run.
type program struct {
	shown string // what people are shown: the command line, or the code
	text  string // the line that the policy decides on
	cwd   string // where it runs, below the working directory; empty: in that itself
	// command has all but the line, which follows from the decision on text.
	command sandbox.Command
	wants   wants
	// elevated: it runs outside of the sandbox, whose settings do not hold for it.
	elevated bool
	// ofHome: it is a tool of the home. command is complete: no shell reads a line.
	ofHome bool
	// shorten: the model reads of a long output what it reads of every long text. The tool of the profile
	// theclaw returns all, as earlier programs do.
	shorten bool
}

// parse reads the arguments of a call; its errors are words for the model. What a set without
// processes does not offer is not read.
func (t *Tool) parse(c toolset.Call) (p program, err error) {
	var a arguments
	switch {
	case len(c.Args) > toolset.MaxArguments:
		return p, errTooLarge
	case json.Unmarshal(c.Args, &a) != nil:
		return p, errors.New("the arguments are not understood: command, comment and cwd are strings, timeout_seconds is a number")
	case strings.TrimSpace(a.Command) == "":
		return p, errors.New("command is missing")
	}
	timeout := t.patience()
	if a.Timeout != nil {
		if !(*a.Timeout > 0 && *a.Timeout <= sandbox.MaxTimeout.Seconds()) {
			return p, fmt.Errorf("timeout_seconds must be above 0 and at most %.0f", sandbox.MaxTimeout.Seconds())
		}
		timeout = time.Duration(*a.Timeout * float64(time.Second))
	}
	if a.Elevated {
		if err := refusesElevated(c.Place.Config); err != nil {
			return p, err
		}
	}
	p = program{shown: a.Command, text: a.Command, shorten: t.background, elevated: a.Elevated}
	if t.background {
		p.wants = wants{background: a.Background, yield: c.Place.Config.GetProcesses().GetYield().AsDuration(), limited: a.Timeout != nil}
		if a.Yield != nil {
			if !(*a.Yield >= 0 && *a.Yield <= sandbox.MaxTimeout.Seconds()) {
				return p, fmt.Errorf("yield_seconds must be at least 0 and at most %.0f", sandbox.MaxTimeout.Seconds())
			}
			p.wants.yield = time.Duration(*a.Yield * float64(time.Second))
		}
	}
	if p.cwd, err = relative(c.Place.Config.GetWorkdir(), c.Place.Outside(a.Cwd)); err != nil {
		return p, err
	}
	p.command = t.command(c, p, timeout)
	if p.elevated {
		p.command.Network = true
		return p, nil
	}
	return p, t.confine(c, &p, networkSetting, c.Place.Config.GetNetworkHosts())
}

var errTooLarge = fmt.Errorf("the arguments are larger than %d KiB: write long text to a file in several calls", toolset.MaxArguments>>10)

// command is what all programs of the agent get, without the line of a call.
func (t *Tool) command(c toolset.Call, p program, timeout time.Duration) sandbox.Command {
	env := map[string]string{
		"TOOL_IDEMPOTENCY_KEY": c.Key,
		"THECLAW_FENCE":        c.Place.Fence,
		"XAR_AGENT_ID":         c.Place.AgentID,
		"XAR_CONV_ID":          c.Place.ThreadID,
	}
	// Also for the approval, which is bound to the names. A container has no program `agent`, and a PATH of its image.
	if c.Place.Config.GetCreatesAgents() && !contained(c.Place.Config, p) {
		env[broker.Variable] = ""
		if t.Agent != "" {
			env["PATH"] = sandbox.Path + ":" + filepath.Dir(t.Agent)
		}
	}
	workdir := c.Place.Config.GetWorkdir()
	return sandbox.Command{
		Workdir: workdir, Network: c.Place.Config.GetSandboxNetwork(), Timeout: timeout,
		SpillDir: filepath.Join(workdir, SpillDir), Env: env,
	}
}

// contained reports whether a program runs in a container. A tool of the home does not: it is a program of this
// machine, and has a network and an input of its own, which a container cannot give to one program.
func contained(c *registrypb.TurnConfig, p program) bool {
	return c.GetSandbox().GetDocker() != nil && !p.elevated && !p.ofHome
}

// confine gives a program of the sandbox the directories of the turn and the hosts of a setting. A container has
// the directories from its settings.
func (t *Tool) confine(c toolset.Call, p *program, setting string, hosts []string) error {
	command := &p.command
	if readsWorkspace(c.Place.Config) && !contained(c.Place.Config, *p) {
		command.Workspace, command.Workdir = command.Workdir, c.Place.Config.GetSandbox().GetScratch()
		command.Env["TMPDIR"] = command.Workdir
	}
	return t.permit(c, command, setting, hosts)
}

// readsWorkspace reports whether programs may read the workspace and write in the scratch directory.
func readsWorkspace(c *registrypb.TurnConfig) bool {
	box := c.GetSandbox()
	return box.GetScratch() != "" && box.GetAccess() == config.AccessReadOnly && c.GetSandboxMode() != string(sandbox.Off)
}

// start is where a command begins, as a path of the shell; empty: in the directory of the command.
func start(c sandbox.Command, cwd string) string {
	if c.Workspace != "" {
		return filepath.Join(c.Workspace, cwd)
	}
	return cwd
}

// relative returns cwd as a path below the working directory; empty: it is that itself.
func relative(workdir, cwd string) (string, error) {
	rel := cwd
	if filepath.IsAbs(cwd) {
		var err error
		if rel, err = filepath.Rel(workdir, cwd); err != nil {
			return "", errors.New("cwd must be inside the working directory")
		}
	}
	if rel == "" {
		return "", nil
	}
	if !filepath.IsLocal(rel) || strings.ContainsRune(rel, 0) {
		return "", errors.New("cwd must be inside the working directory")
	}
	if rel = filepath.Clean(rel); rel == "." {
		return "", nil
	}
	return rel, nil
}

// inside puts a change of directory in front of a command. The directory that a
// program can write stays the sandbox's own; a link that leads out of cwd leads to
// nothing in there.
func inside(cwd, command string) string {
	if cwd == "" {
		return command
	}
	return "cd -- '" + strings.ReplaceAll(cwd, "'", `'\''`) + "' || exit 1\n" + command
}

// makeWorkdir makes the working directory and the one for long output (S1-25).
func makeWorkdir(dir string) error {
	if !filepath.IsAbs(dir) {
		return errors.New("the path is not absolute")
	}
	return os.MkdirAll(dir, 0o700)
}
