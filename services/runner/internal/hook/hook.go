// Package hook runs the programs of hooks in the sandbox.
//
//	event JSON --> stdin --> program --> exit 0: stdout is the answer, JSON or nothing
//	                                     exit 2: it refuses, stderr is the reason
//	                                     other, a signal, too much output, the timeout: a failure
//
// The directory hooks of the agent, or of the home, is at /hooks and read-only; the current directory is
// an empty one that is removed after the call. A program gets no network, none of our descriptors, and no
// variable of ours but those that its settings name.
//
// It promises that a program never runs outside of the sandbox, that it is killed with all that it started
// when its time is over, and that its answer is bounded and valid UTF-8. It decides nothing: what an answer
// means, and which hooks are called, is package internal/hook's.
package hook

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/sandbox"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
)

const (
	// shown is where a program sees the directory of hooks.
	shown = "/hooks"
	// dirVariable names the same where the sandbox has no root of its own.
	dirVariable = "THECLAW_HOOKS"
	// refused is the exit status that blocks or cancels.
	refused = 2
	// maxErrors is how much of stderr is kept besides the answer.
	maxErrors = 16 << 10
	// maxFailure is the most bytes of the text of a failure.
	maxFailure = 1000
)

// Sandbox runs programs; [sandbox.Sandbox] does.
type Sandbox interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
	TempDir() (string, error)
	Report() sandbox.Report
}

// Programs runs the programs of hooks. All fields but Home are required.
type Programs struct {
	// Sandbox returns the sandbox of a mode.
	Sandbox func(mode string) (Sandbox, error)
	// Values reads what the settings refer to.
	Values secret.Source
	// Home is the directory of the home; empty: hooks of the home need an absolute command.
	Home string
}

// Place is where the hooks of an agent are.
type Place struct {
	Dir  string // of the agent; empty: without an agent
	Mode string // of the sandbox: required or reduced
}

// Run runs the program of a hook with an event, at most for the timeout of the hook. What the program does wrong is
// its answer; the error says that none could be started here.
func (p *Programs) Run(ctx context.Context, at Place, h hook.Hook, input string) (*runnerpb.RunHookResponse, error) {
	box, err := p.Sandbox(at.Mode)
	if err != nil {
		return nil, err
	}
	command, failure := p.command(at, h, box.Report().Level.OwnRoot())
	if failure != "" {
		return &runnerpb.RunHookResponse{Failure: failure}, nil
	}
	if command.Workdir, err = box.TempDir(); err != nil {
		return nil, fmt.Errorf("make directory of a hook: %w", err)
	}
	defer os.RemoveAll(command.Workdir)
	command.Stdin = strings.NewReader(input)
	end, err := box.Run(ctx, command)
	if err != nil {
		return &runnerpb.RunHookResponse{Failure: clip(fault.From(err).What)}, nil
	}
	return result(end), nil
}

// command is what the settings say. failure is why there is none.
func (p *Programs) command(at Place, h hook.Hook, ownRoot bool) (c sandbox.Command, failure string) {
	dir, failure := p.dir(at, h)
	if failure != "" {
		return c, failure
	}
	c = sandbox.Command{
		Argv: append([]string{}, h.Command...), Workspace: dir, Timeout: h.Timeout, OutputCap: hook.MaxJSON + maxErrors, Env: map[string]string{},
	}
	seen := dir
	if dir != "" && ownRoot {
		seen, c.WorkspaceAt = shown, shown
	}
	if filepath.IsAbs(c.Argv[0]) {
		if !strings.HasPrefix(c.Argv[0], shown+"/") {
			c.Locate()
		}
	} else {
		c.Argv[0] = filepath.Join(seen, c.Argv[0])
	}
	for name, ref := range h.Env {
		value, err := p.Values.Value(ref)
		if err != nil || value == "" {
			return c, fmt.Sprintf("the value of %s cannot be read from %s", name, ref)
		}
		c.Env[name] = value
	}
	if seen != "" {
		c.Env[dirVariable] = seen
	}
	return c, ""
}

// dir is the directory that is shown to the program: that which has its file, those of the agent first. Empty: there
// is none, and it needs none.
func (p *Programs) dir(at Place, h hook.Hook) (dir, failure string) {
	var dirs []string
	if at.Dir != "" && !h.OfHome {
		dirs = append(dirs, filepath.Join(at.Dir, "hooks"))
	}
	if p.Home != "" {
		dirs = append(dirs, filepath.Join(p.Home, "hooks"))
	}
	program := h.Command[0]
	for _, d := range dirs {
		look := d
		if !filepath.IsAbs(program) {
			look = filepath.Join(d, program)
		}
		if _, err := os.Stat(look); err == nil {
			return d, ""
		}
	}
	if filepath.IsAbs(program) {
		return "", ""
	}
	if len(dirs) == 0 {
		return "", "this runner has no directory of hooks"
	}
	return "", clip(fmt.Sprintf("there is no file %s in %s", program, strings.Join(dirs, " or ")))
}

// result reads how a program ended.
func result(end sandbox.Result) *runnerpb.RunHookResponse {
	output := bytes.TrimSpace(end.Stdout)
	switch {
	case end.TimedOut:
		return &runnerpb.RunHookResponse{Failure: fmt.Sprintf("it was killed after %s", end.Duration.Round(time.Millisecond))}
	case end.Canceled:
		return &runnerpb.RunHookResponse{Failure: context.Canceled.Error()}
	case end.Signal != "":
		return &runnerpb.RunHookResponse{Failure: clip("it was ended by " + end.Signal + lastLine(end.Stderr))}
	case end.ExitCode == refused:
		reason, _ := boundary.Text(strings.TrimSpace(sandbox.Text(end.Stderr)), 2<<10)
		return &runnerpb.RunHookResponse{Refused: true, Reason: reason}
	case end.ExitCode != 0:
		return &runnerpb.RunHookResponse{Failure: clip(fmt.Sprintf("exit %d%s", end.ExitCode, lastLine(end.Stderr)))}
	case end.Truncated || len(output) > hook.MaxJSON:
		return &runnerpb.RunHookResponse{Failure: fmt.Sprintf("its output is longer than %d bytes", hook.MaxJSON)}
	case !utf8.Valid(output):
		return &runnerpb.RunHookResponse{Failure: "its output is not valid UTF-8"}
	}
	return &runnerpb.RunHookResponse{Output: string(output)}
}

// lastLine is the last line that a program wrote to stderr.
func lastLine(stderr []byte) string {
	text := strings.TrimSpace(sandbox.Text(stderr))
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}

func clip(text string) string {
	out, _ := boundary.Text(text, maxFailure)
	return out
}
