package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/sandbox/docker"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// maxOutput is how much of a program of the settings is read, stdout and stderr together, in bytes.
	maxOutput = 1 << 20
	// maxReason bounds the last line of stderr in an error.
	maxReason = 500
)

// ErrOutOfTime is the error of a program that was ended at its timeout.
var ErrOutOfTime = errors.New("it was ended at its timeout")

// Output runs a program of the settings where programs of the agent run, and returns what it printed to stdout, as text.
// No policy decides on it: no model has chosen its words. key names the step that it is for. The error says what
// went wrong, and is the cause of ctx where that ended it.
func (t *Tool) Output(ctx context.Context, at toolset.Place, key string, argv []string, timeout time.Duration) (string, error) {
	c := toolset.Call{Key: key, Place: at}
	p := program{command: t.command(c, program{}, timeout)}
	p.command.Argv, p.command.OutputCap, p.command.SpillDir = argv, maxOutput, ""
	if err := t.confine(c, &p, networkSetting, at.Config.GetNetworkHosts()); err != nil {
		return "", err
	}
	var box Sandbox
	var err error
	if contained(at.Config, p) {
		box = t.Container(docker.BoxOf(at.Config, at.Fence))
	} else {
		p.command.Locate()
		if box, err = t.Sandbox(at.Config.GetSandboxMode()); err != nil {
			return "", errors.New(fault.From(err).What)
		}
	}
	r, err := runIn(ctx, box, p.command)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", errors.New(reason(err))
	case r.TimedOut:
		return "", ErrOutOfTime
	case r.ExitCode != 0:
		why := strings.TrimSpace(sandbox.Text(r.Stderr))
		why, _ = boundary.Text(why[strings.LastIndexByte(why, '\n')+1:], maxReason)
		return "", fmt.Errorf("exit code %d: %s", r.ExitCode, why)
	}
	return sandbox.Text(r.Stdout), nil
}
