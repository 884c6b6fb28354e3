package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// SpillDir is where the rest of a long output goes, in the working directory.
const SpillDir = ".output"

type arguments struct {
	Command string   `json:"command"`
	Comment string   `json:"comment"`
	Cwd     string   `json:"cwd"`
	Timeout *float64 `json:"timeout_seconds"`
}

// parse reads the arguments of a call; its errors are words for the model. The command has not
// the line that runs yet: see [Tool.decide].
func (t *Tool) parse(c toolset.Call) (a arguments, command sandbox.Command, err error) {
	switch {
	case len(c.Args) > toolset.MaxArguments:
		return a, command, fmt.Errorf("the arguments are larger than %d KiB: write long text to a file in several calls", toolset.MaxArguments>>10)
	case json.Unmarshal(c.Args, &a) != nil:
		return a, command, errors.New("the arguments are not understood: command, comment and cwd are strings, timeout_seconds is a number")
	case strings.TrimSpace(a.Command) == "":
		return a, command, errors.New("command is missing")
	}
	timeout := sandbox.DefaultTimeout
	if a.Timeout != nil {
		if !(*a.Timeout > 0 && *a.Timeout <= sandbox.MaxTimeout.Seconds()) {
			return a, command, fmt.Errorf("timeout_seconds must be above 0 and at most %.0f", sandbox.MaxTimeout.Seconds())
		}
		timeout = time.Duration(*a.Timeout * float64(time.Second))
	}
	workdir := c.Place.Config.GetWorkdir()
	if a.Cwd, err = relative(workdir, a.Cwd); err != nil {
		return a, command, err
	}
	env := map[string]string{
		"TOOL_IDEMPOTENCY_KEY": c.Key,
		"THECLAW_FENCE":        c.Place.Fence,
		"XAR_AGENT_ID":         c.Place.AgentID,
		"XAR_CONV_ID":          c.Place.ThreadID,
	}
	if c.Place.Config.GetCreatesAgents() { // also for the approval, which is bound to the names
		env[broker.Variable] = ""
		if t.Agent != "" {
			env["PATH"] = sandbox.Path + ":" + filepath.Dir(t.Agent)
		}
	}
	return a, sandbox.Command{
		Workdir: workdir, Network: c.Place.Config.GetSandboxNetwork(), Timeout: timeout,
		SpillDir: filepath.Join(workdir, SpillDir), Env: env,
	}, nil
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

// inside puts a change of directory in front of a command. The working directory
// is the one place a program can write, so it stays the sandbox's own; a link
// that leads out of cwd leads to nothing in there.
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
