package tools

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// place is where the programs of a conversation run, for programs.
type place struct {
	Sandboxed    bool   `json:"sandboxed"`
	Mode         string `json:"mode"`
	Why          string `json:"why"`
	Driver       string `json:"driver"`
	Scope        string `json:"scope"`
	ScopeKey     string `json:"scope_key"`
	Workspace    string `json:"workspace"`
	Network      string `json:"network"`
	HostCommands string `json:"host_commands"`
	Problem      string `json:"problem"`
}

func sandboxCommand(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:     "sandbox",
		Short:   "Show where the programs of an agent run",
		Example: `  agentctl sandbox explain alice`,
	}, sandboxExplainCommand(e))
}

func sandboxExplainCommand(e *command.Env) *cobra.Command {
	var key string
	c := &cobra.Command{
		Use:   "explain ID",
		Short: "Show where the programs of a conversation run",
		Long: `Show whether the programs that a conversation starts run in a sandbox (sandbox.mode), how it is
made on this runner, which conversations have the same scratch directory (sandbox.scope), what they
can do with the working directory of the agent (sandbox.workspace_access), which network they have,
and what decides about commands on the host.`,
		Example: `  agentctl sandbox explain alice
  agentctl sandbox explain alice --session agent:alice:telegram:group:-100`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := list(c, e, args[0], key)
			if err != nil {
				return err
			}
			p := placeOf(r.GetSandbox())
			if p.Problem != "" {
				e.Note("%s - %s", screen.Line(p.Problem), screen.Line(r.GetSandbox().GetProblemFix()))
			}
			return e.Show(p, args[0], "%s", screen.Line(p.String()))
		},
	}
	return session(c, &key)
}

func placeOf(s *runner.SandboxInfo) place {
	return place{
		Sandboxed: s.GetSandboxed(), Mode: s.GetMode(), Why: s.GetWhy(), Driver: s.GetLevel(), Scope: s.GetScope(), ScopeKey: s.GetScopeKey(),
		Workspace: s.GetWorkspace(), Network: s.GetNetwork(), HostCommands: s.GetHostCommands(), Problem: s.GetProblem(),
	}
}

// String is the place in one line.
func (p place) String() string {
	mode := "mode " + p.Mode
	if p.Why != "" {
		mode += ", " + p.Why
	}
	parts := []string{"sandboxed no (" + mode + ")"}
	if p.Sandboxed {
		parts = []string{"sandboxed yes (" + mode + ")", "driver " + p.Driver, fmt.Sprintf("scope %s %q", p.Scope, p.ScopeKey), "workspace " + p.Workspace, "network " + p.Network}
	}
	return strings.Join(append(parts, "host commands: "+p.HostCommands), " - ")
}
