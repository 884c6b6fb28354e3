// Package shell implements the tools that run programs in a sandbox, in the working directory of
// the agent (S0-103): a command line, Python code, and what goes on in the background ([Processes]).
//
//	call --> policy for commands --> approval, where one is needed --> sandbox [--> background]
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
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/sandbox/docker"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Name of the tool.
const Name = "bash_exec"

// Sandbox runs a command; [sandbox.Sandbox] does.
type Sandbox interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

// Meter counts; [obs.RunnerMetrics] does.
type Meter interface {
	// AddEgressRefused counts a connection to a host that is not allowed.
	AddEgressRefused()
	// ProcessState notes that a program in the background has another state: starting, running; empty: it is over, or was
	// none.
	ProcessState(from, to string)
}

// Tool implements [toolset.Tool] and [toolset.Varying].
type Tool struct {
	// Sandbox returns the sandbox for a mode of the configuration.
	Sandbox func(mode string) (Sandbox, error)
	// Container returns a sandbox that is a container, which settings may name in place of the other.
	Container func(docker.Box) Sandbox
	// Approvals asks people; nil refuses what has to be asked.
	Approvals toolset.Approvals
	// Agent is the program `agent`, as programs in the sandbox see it; empty: they
	// look for it in the usual places.
	Agent  string
	Logger *slog.Logger
	// Workdirs brings and keeps working directories that move between machines; nil: they
	// do not.
	Workdirs *WorkdirSync
	// Meter counts; nil: nothing is counted.
	Meter Meter
	// Processes are the programs in the background; nil: every command is waited for.
	Processes *Processes

	// Of the tool as it is in a set: whether commands may go on in the background, and how
	// long one may run whose call does not say it; 0: sandbox.DefaultTimeout.
	background bool
	timeout    time.Duration
	elevated   bool // commands may ask to run outside of the sandbox
}

// Spec implements [toolset.Tool].
func (t *Tool) Spec() toolset.Spec {
	more := ""
	if t.background {
		more = `,"background":{"type":"boolean","description":"start it and go on at once: the tool process reads, ends and lists what runs, and a message comes at its end"},` +
			`"yield_seconds":{"type":"number","description":"wait for it so long, then let it go on in the background; 0 waits for its end"}`
	}
	if t.elevated {
		more += `,"elevated":{"type":"boolean","description":"run it outside of the sandbox, on the machine itself, where that is needed; a person may be asked"}`
	}
	return toolset.Spec{
		Name:        Name,
		Description: "Runs a shell command in the working directory and answers its stdout, stderr and exit code.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"command":{"type":"string","description":"the command line for bash -c"},` +
			`"comment":{"type":"string","description":"why you run it, in a few words"},` +
			`"cwd":{"type":"string","description":"directory to run in, inside the working directory"},` +
			`"timeout_seconds":{"type":"number","description":"seconds until it is killed; ` + strconv.Itoa(int(t.patience().Seconds())) + ` unless given, at most 3600"}` + more + `},` +
			`"required":["command"]}`),
		Needs: toolset.Program, Summary: toolset.Summarize("command"),
	}
}

func (t *Tool) patience() time.Duration { return cmp.Or(t.timeout, sandbox.DefaultTimeout) }

// In implements [toolset.Varying].
func (t *Tool) In(c *registrypb.TurnConfig, offers func(name string) bool) toolset.Tool {
	in := *t
	in.timeout = c.GetProcesses().GetTimeout().AsDuration()
	in.background = t.Processes != nil && c.GetProcesses().GetMax() > 0 && !c.GetCreatesAgents() && offers(ProcessName)
	in.elevated = refusesElevated(c) == nil
	return &in
}

// Run implements [toolset.Tool].
func (t *Tool) Run(ctx context.Context, c toolset.Call) toolset.Result {
	p, err := t.parse(c)
	if err != nil {
		return toolset.Failed(err.Error())
	}
	return t.execute(ctx, c, p)
}

// execute is the one way in which tools run programs.
func (t *Tool) execute(ctx context.Context, c toolset.Call, p program) toolset.Result {
	config := c.Place.Config
	mode := config.GetSandboxMode()
	if p.elevated {
		mode = string(sandbox.Off)
	}
	var box Sandbox
	var err error
	if contained(config, p) {
		box = t.Container(docker.BoxOf(config, c.Place.Fence))
	} else if box, err = t.Sandbox(mode); err != nil {
		return toolset.Failed(fault.From(err).What)
	}
	v := decide(c, p)
	command := p.command
	if !p.ofHome {
		command.Shell = inside(start(command, p.cwd), v.Text)
	}
	switch v.Action {
	case execpolicy.Refuse:
		return toolset.Failed("nothing was run: " + v.Why)
	case execpolicy.Question:
		if err := ask(ctx, t.Approvals, c, p, command, v); err != nil {
			return toolset.Failed(err.Error())
		}
	}
	use := used(config, p, v)
	if config.GetCreatesAgents() && !contained(config, p) {
		socket, err := broker.Listen(ctx, command.Workdir, func(ctx context.Context, r broker.Request) (string, error) {
			return create(ctx, t.Approvals, c, command.Workdir, r)
		})
		if err == nil {
			defer socket.Close()
			command.Env[broker.Variable] = socket.Path()
		} else { // the command may not want it
			t.logger().WarnContext(ctx, "no socket for new agents", "agent_id", c.Place.AgentID, "tool", c.Name, "call_key", c.Key, "error", err)
		}
	}
	after := func(context.Context) error { return nil }
	if t.Workdirs != nil && config.GetWorkdirSync() {
		if err := t.Workdirs.Restore(ctx, c.Place); err != nil {
			return toolset.Failed("nothing was run: " + err.Error())
		}
		after = func(ctx context.Context) error { return t.Workdirs.Save(ctx, c.Place) }
	}
	var result toolset.Result
	p.wants.contained, p.wants.shown = contained(config, p), p.shown
	if w := p.wants; w.background || w.yield > 0 && w.yield < command.Timeout {
		result = t.Processes.run(ctx, box, command, c, w, after)
	} else {
		result = saved(ctx, run(ctx, box, command, c.Progress), after)
	}
	if !result.IsError {
		result.ExecUse = use
		if p.shorten {
			result.JSON = shortened(c, result.JSON)
		}
	}
	return result
}

// shortened is the output of a program of which the model reads the beginnings and the ends. What is read from
// stderr is at most a quarter.
func shortened(c toolset.Call, result json.RawMessage) json.RawMessage {
	var out toolset.Output
	most := toolset.ResultChars(c.Place.Config)
	if len(result) <= most || json.Unmarshal(result, &out) != nil || utf8.RuneCountInString(out.Stdout)+utf8.RuneCountInString(out.Stderr) <= most {
		return result
	}
	whole := out.Stdout
	if out.Stderr != "" {
		whole += "\n[stderr]\n" + out.Stderr
	}
	if out.CompleteOutput == "" {
		out.CompleteOutput = toolset.Complete(c, whole)
	} else {
		c.Shortened()
	}
	complete := func(string) string { return out.CompleteOutput }
	out.Stderr = toolset.Ends(out.Stderr, most/4, complete)
	out.Stdout = toolset.Ends(out.Stdout, most-min(most/4, utf8.RuneCountInString(out.Stderr)), complete)
	out.Truncated = true
	return out.JSON()
}

// saved is a result after the working directory was kept.
func saved(ctx context.Context, result toolset.Result, after func(context.Context) error) toolset.Result {
	if err := after(ctx); err != nil && !result.IsError {
		result.JSON = toolset.Note(result.JSON, err.Error())
	}
	return result
}

// run runs a command. When ctx ends, the whole tree of processes is killed first.
func run(ctx context.Context, box Sandbox, command sandbox.Command, progress func(string)) toolset.Result {
	if err := makeWorkdir(cmp.Or(command.Workspace, command.Workdir)); err != nil {
		return toolset.Failed("the working directory cannot be made: " + err.Error())
	}
	if progress != nil {
		command.OnStdout = func(b []byte) { progress(toolset.OutputText(b)) }
		command.OnStderr = command.OnStdout
	}
	r, err := runIn(ctx, box, command)
	return output(r, err, command)
}

// runIn runs a command in a sandbox, as a span of the trace.
func runIn(ctx context.Context, box Sandbox, command sandbox.Command) (sandbox.Result, error) {
	ctx, span := tracing.Child(ctx, tracing.SpanSandbox)
	defer span.End()
	return box.Run(ctx, command)
}

// output is what came of a command.
func output(r sandbox.Result, err error, command sandbox.Command) toolset.Result {
	if err != nil {
		return toolset.Failed(reason(err))
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
	if command.Log != "" && out.Spill != "" { // the log has everything
		out.CompleteOutput = filepath.Join(SpillDir, command.Log)
	}
	return toolset.Result{JSON: out.JSON(), Bounded: true}
}
