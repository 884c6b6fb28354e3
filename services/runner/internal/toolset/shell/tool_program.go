package shell

import (
	"context"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/argv"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Programs returns the programs of the home that are tools. They run as commands do, without a shell, and with a network
// of their own.
func (t *Tool) Programs(c *registrypb.TurnConfig) []toolset.Tool {
	var out []toolset.Tool
	for _, p := range c.GetPrograms().GetList() {
		out = append(out, programTool{t, p})
	}
	return out
}

// programTool implements [toolset.Tool].
type programTool struct {
	tool     *Tool
	settings *registrypb.ProgramTool
}

// Spec implements [toolset.Tool].
func (t programTool) Spec() toolset.Spec {
	s := toolset.Spec{
		Name: t.settings.GetName(), Description: t.settings.GetDescription(), Schema: []byte(t.settings.GetSchema()), Needs: toolset.Program,
		Group: toolpolicy.GroupPrograms,
	}
	if t.settings.GetNetwork() || len(t.settings.GetNetworkHosts()) > 0 {
		s.Needs |= toolset.Network
	}
	return s
}

// Class implements [toolset.Tool]: that of the settings, unless the policy refuses the call or asks a person: a call that
// waits runs alone, and an approval is for one run.
func (t programTool) Class(c toolset.Call) toolset.Class {
	if v, ok := judge(c, t.parse); ok && v.Action == execpolicy.Refuse {
		return toolset.Read
	} else if ok && v.Action == execpolicy.Question {
		return toolset.Effect
	}
	for _, class := range []toolset.Class{toolset.Read, toolset.Idempotent} {
		if t.settings.GetClass() == class.String() {
			return class
		}
	}
	return toolset.Effect
}

// Asks implements [toolset.Asker].
func (t programTool) Asks(c toolset.Call) bool {
	v, ok := judge(c, t.parse)
	return ok && v.Action == execpolicy.Question
}

// Run implements [toolset.Tool].
func (t programTool) Run(ctx context.Context, c toolset.Call) toolset.Result {
	p, err := t.parse(c)
	if err != nil {
		return toolset.Failed("nothing was run: " + err.Error())
	}
	return t.tool.execute(ctx, c, p)
}

// changeDir is a program that runs another one in a directory. Its arguments are words of its own: nothing of them is
// read as a line.
var changeDir = []string{"/bin/sh", "-c", `cd -- "$1" && shift && exec "$@"`, "sh"}

// parse reads the arguments of a call. The policy and people see a line of the same words.
func (t programTool) parse(c toolset.Call) (p program, err error) {
	if len(c.Args) > toolset.MaxArguments {
		return p, errTooLarge
	}
	p = program{shorten: true, ofHome: true}
	p.command = t.tool.command(c, p, t.settings.GetTimeout().AsDuration())
	command := &p.command
	command.Network, command.Argv = t.settings.GetNetwork(), slices.Clone(t.settings.GetArgv())
	if t.settings.GetStdin() {
		command.Stdin = strings.NewReader(string(c.Args) + "\n")
	} else if command.Argv, err = argv.Fill(command.Argv, c.Args); err != nil {
		return p, err
	}
	if err := t.tool.confine(c, &p, "tools.programs."+t.settings.GetName()+".network", t.settings.GetNetworkHosts()); err != nil {
		return p, err
	}
	command.Locate() // what the policy decides on is then what runs, whatever PATH is in the sandbox
	p.text = execpolicy.Join(command.Argv)
	p.shown = p.text
	if dir := start(*command, ""); dir != "" {
		command.Argv = slices.Concat(changeDir, []string{dir}, command.Argv)
	}
	return p, nil
}

// leaves reports whether a program of the home runs where the policy for commands decides.
func (p program) leaves(c *registrypb.TurnConfig) bool {
	return p.command.Network || c.GetSandboxMode() == string(sandbox.Off)
}
