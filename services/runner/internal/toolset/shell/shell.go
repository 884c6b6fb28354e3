// Package shell implements the tool that runs a command line in a sandbox, in the working
// directory of the agent (S0-103).
//
//	call --> policy for commands --> approval, where one is needed --> sandbox of the agent's mode
//	                                  +-- before and after it, the working directory
//	                                      is brought and kept, where it moves
//	                                  +-- while it runs, a socket for new agents
//	                                      (package broker), for agents that may make them
//
// Its class is effect: after a crash in the middle it is unknown what a command did. It
// promises that a command runs only where and when the agent's settings let it; that its
// environment is the sandbox's, the variables below, and what the agent's settings add:
//
//	TOOL_IDEMPOTENCY_KEY   key of the turn and of the call: the same after a crash
//	THECLAW_FENCE          resource=token of the lease the command runs under
//	XAR_AGENT_ID           the agent
//	XAR_CONV_ID            the conversation thread
package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Name of the tool.
const Name = "bash_exec"

// Sandbox runs a command; [sandbox.Sandbox] does.
type Sandbox interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

// Tool implements [toolset.Tool].
type Tool struct {
	// Sandbox returns the sandbox for a mode of the configuration.
	Sandbox func(mode string) (Sandbox, error)
	// Approvals asks people; nil refuses what has to be asked.
	Approvals Approvals
	// Agent is the program `agent`, as programs in the sandbox see it; empty: they
	// look for it in the usual places.
	Agent  string
	Logger *slog.Logger
	// Workdirs brings and keeps working directories that move between machines; nil: they
	// do not.
	Workdirs *WorkdirSync
}

var spec = toolset.Spec{
	Name:        Name,
	Description: "Runs a shell command in the working directory and answers its stdout, stderr and exit code.",
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"command":{"type":"string","description":"the command line for bash -c"},` +
		`"comment":{"type":"string","description":"why you run it, in a few words"},` +
		`"cwd":{"type":"string","description":"directory to run in, inside the working directory"},` +
		`"timeout_seconds":{"type":"number","description":"seconds until it is killed; 600 unless given, at most 3600"}},` +
		`"required":["command"]}`),
	Needs: toolset.Program,
}

// Spec implements [toolset.Tool].
func (*Tool) Spec() toolset.Spec { return spec }

// Run implements [toolset.Tool].
func (t *Tool) Run(ctx context.Context, c toolset.Call) toolset.Result {
	config := c.Place.Config
	box, err := t.Sandbox(config.GetSandboxMode())
	if err != nil {
		return toolset.Failed(fault.From(err).What)
	}
	a, command, err := t.parse(c)
	if err != nil {
		return toolset.Failed(err.Error())
	}
	v := decide(c, a, command)
	command.Shell = inside(a.Cwd, v.Text)
	switch v.Action {
	case execpolicy.Refuse:
		return toolset.Failed("nothing was run: " + v.Why)
	case execpolicy.Question:
		if err := ask(ctx, t.Approvals, c, a, command, v); err != nil {
			return toolset.Failed(err.Error())
		}
	}
	use := used(config, a, v)
	if config.GetCreatesAgents() {
		socket, err := broker.Listen(ctx, command.Workdir, func(ctx context.Context, r broker.Request) (string, error) {
			return create(ctx, t.Approvals, c, command.Workdir, r)
		})
		if err == nil {
			defer socket.Close()
			command.Env[broker.Variable] = socket.Path()
		} else { // the command may not want it
			t.Logger.WarnContext(ctx, "no socket for new agents", "agent_id", c.Place.AgentID, "error", err)
		}
	}
	if t.Workdirs == nil || !config.GetWorkdirSync() {
		return run(ctx, box, command, c.Progress, use)
	}
	if err := t.Workdirs.Restore(ctx, c.Place); err != nil {
		return toolset.Failed("nothing was run: " + err.Error())
	}
	result := run(ctx, box, command, c.Progress, use)
	if err := t.Workdirs.Save(ctx, c.Place); err != nil && !result.IsError {
		result.JSON = toolset.Note(result.JSON, err.Error())
	}
	return result
}

// run runs a command that use has let run. When ctx ends, the whole tree of processes is killed
// first.
func run(ctx context.Context, box Sandbox, command sandbox.Command, progress func(string), use *registrypb.ExecUse) toolset.Result {
	if err := makeWorkdir(command.Workdir); err != nil {
		return toolset.Failed("the working directory cannot be made: " + err.Error())
	}
	if progress != nil {
		command.OnStdout = func(b []byte) { progress(toolset.OutputText(b)) }
		command.OnStderr = command.OnStdout
	}
	r, err := box.Run(ctx, command)
	if err != nil {
		e := fault.From(err)
		text := e.What
		if e.Fix != "" {
			text += " - " + e.Fix
		}
		return toolset.Failed(text)
	}
	out := toolset.Output{
		Stdout: sandbox.Text(r.Stdout), Stderr: sandbox.Text(r.Stderr), ExitCode: r.ExitCode,
		TimedOut: r.TimedOut, Truncated: r.Truncated, Spill: r.Spill,
	}
	switch {
	case r.TimedOut:
		out.Stderr += fmt.Sprintf("\n[killed: it ran longer than %s]", command.Timeout)
	case r.Canceled:
		out.Stderr += "\n[killed: the turn was ended]"
	}
	return toolset.Result{JSON: out.JSON(), ExecUse: use}
}
