package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/sandbox"
)

// SpillDir is where the rest of a long output goes, in the working directory.
const SpillDir = ".output"

type arguments struct {
	Command string   `json:"command"`
	Comment string   `json:"comment"`
	Cwd     string   `json:"cwd"`
	Timeout *float64 `json:"timeout_seconds"`
}

// parse reads a call's arguments; its errors are words for the model.
func parse(at Place, c Call) (sandbox.Command, error) {
	var a arguments
	switch {
	case len(c.Arguments) > MaxArguments:
		return sandbox.Command{}, fmt.Errorf("the arguments are larger than %d KiB: write long text to a file in several calls", MaxArguments>>10)
	case json.Unmarshal(c.Arguments, &a) != nil:
		return sandbox.Command{}, errors.New("the arguments are not understood: command, comment and cwd are strings, timeout_seconds is a number")
	case strings.TrimSpace(a.Command) == "":
		return sandbox.Command{}, errors.New("command is missing")
	}
	timeout := sandbox.DefaultTimeout
	if a.Timeout != nil {
		if !(*a.Timeout > 0 && *a.Timeout <= sandbox.MaxTimeout.Seconds()) {
			return sandbox.Command{}, fmt.Errorf("timeout_seconds must be above 0 and at most %.0f", sandbox.MaxTimeout.Seconds())
		}
		timeout = time.Duration(*a.Timeout * float64(time.Second))
	}
	shell, err := inside(at.Workdir, a.Cwd, a.Command)
	if err != nil {
		return sandbox.Command{}, err
	}
	env := map[string]string{
		"TOOL_IDEMPOTENCY_KEY": c.Key,
		"THECLAW_FENCE":        at.Fence,
		"XAR_AGENT_ID":         at.AgentID,
		"XAR_CONV_ID":          at.ThreadID,
	}
	maps.Copy(env, at.Env)
	return sandbox.Command{
		Shell: shell, Workdir: at.Workdir, Network: at.Network, Timeout: timeout,
		SpillDir: filepath.Join(at.Workdir, SpillDir), Env: env,
	}, nil
}

// inside puts a change of directory in front of a command. The working directory
// is the one place a program can write, so it stays the sandbox's own; a link
// that leads out of cwd leads to nothing in there.
func inside(workdir, cwd, command string) (string, error) {
	if cwd == "" {
		return command, nil
	}
	rel := cwd
	if filepath.IsAbs(cwd) {
		var err error
		if rel, err = filepath.Rel(workdir, cwd); err != nil {
			return "", errors.New("cwd must be inside the working directory")
		}
	}
	if !filepath.IsLocal(rel) || strings.ContainsRune(rel, 0) {
		return "", errors.New("cwd must be inside the working directory")
	}
	if rel = filepath.Clean(rel); rel == "." {
		return command, nil
	}
	return "cd -- '" + strings.ReplaceAll(rel, "'", `'\''`) + "' || exit 1\n" + command, nil
}

// makeWorkdir makes the working directory and the one for long output (S1-25).
func makeWorkdir(dir string) error {
	if !filepath.IsAbs(dir) {
		return errors.New("the path is not absolute")
	}
	return os.MkdirAll(dir, 0o700)
}

// cut shortens a text to at most n bytes of whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
