// Package doctor implements the commands that inspect the runtime itself: `agentctl
// doctor` checks what commonly goes wrong and says how to fix it, `agentctl lease list`
// shows which worker holds which lease.
//
// doctor changes nothing without --fix. It queries the services and reads the home
// directory; what is on another machine it cannot see and does not check.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
)

// Commands answers the commands of this package.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{doctorCommand(e), leaseCommand(e)}
}

// The statuses of a finding.
const (
	ok      = "ok"
	warning = "warning"
	problem = "problem"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"`
	Fixed  bool   `json:"fixed,omitempty"`
}

// examination collects findings.
type examination struct {
	env      *command.Env
	home     layout.Home
	findings []finding
	mends    []mending
	fixes    []mended
	// byDefault is the provider of agents that name none; empty: no runner was asked.
	byDefault string
	// choices are the models that agents name, in the order they were found, and what is
	// wrong with each; probed are the providers among them that were called.
	choices map[choice]*provider.Problem
	probed  map[string]bool
	// known are the tools of all agents, by their names in policies, and ofHome the settings of the home, empty where they
	// cannot be read.
	known  []string
	ofHome layer.HomeSettings
}

// choice is a provider and a model as an agent names them.
type choice struct{ provider, model string }

// options are the flags of the command.
type options struct{ fix, dry bool }

func (x *examination) note(check, status, fix, format string, args ...any) {
	x.findings = append(x.findings, finding{Check: check, Status: status, Detail: fmt.Sprintf(format, args...), Fix: fix})
}

func (x *examination) good(check, format string, args ...any) { x.note(check, ok, "", format, args...) }

func doctorCommand(e *command.Env) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the runtime and show how to fix problems",
		Long: `Check the home directory, the services, the model, the sandbox and every agent,
and show for each problem how to fix it. The providers in use are called, each with one
small question of a few tokens. The exit code is 1 when there is a problem;
warnings do not count. Nothing is changed without --fix, which fixes only what is safe:
file modes, locks and files that killed processes left, a missing subscription. What
needs a decision is left to you. --dry-run shows what --fix would do.`,
		Example: `  agentctl doctor
  agentctl doctor --fix --dry-run
  agentctl doctor --fix
  agentctl doctor --json | jq '.checks[] | select(.status != "ok")'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.dry && !o.fix {
				return command.Usage(c, "--dry-run goes with --fix")
			}
			e.Impatient = true // who is away is what it looks for
			home, err := e.Home()
			if err != nil {
				return err
			}
			x := &examination{env: e, home: home, choices: map[choice]*provider.Problem{}, probed: map[string]bool{}}
			x.run(c.Context())
			if err := c.Context().Err(); err != nil {
				return err
			}
			if o.fix {
				x.fix(c.Context(), o.dry)
			}
			return x.report(o)
		},
	}
	c.Flags().BoolVar(&o.fix, "fix", false, "fix what is safe to fix")
	c.Flags().BoolVar(&o.dry, "dry-run", false, "with --fix: only show what would be done")
	return c
}

func (x *examination) run(ctx context.Context) {
	x.directory(ctx)
	x.disk()
	x.scratch(ctx)
	x.certs()
	reachable := x.registry(ctx)
	x.runner(ctx)
	x.deliverer(ctx)
	x.gateway(ctx)
	if reachable {
		x.people(ctx)
		x.waits(ctx)
		x.pins(ctx)
		x.agents(ctx)
	}
	x.legacy(ctx, reachable)
}

// Report checks everything, changes nothing, and answers the findings as JSON.
func Report(ctx context.Context, e *command.Env) ([]byte, error) {
	home, err := e.Home()
	if err != nil {
		return nil, err
	}
	x := &examination{env: e, home: home, choices: map[choice]*provider.Problem{}, probed: map[string]bool{}}
	x.run(ctx)
	return json.MarshalIndent(struct {
		Checks []finding `json:"checks"`
	}{x.findings}, "", "  ")
}

func (x *examination) report(o options) error {
	problems, warnings := 0, 0
	for _, f := range x.findings {
		switch {
		case f.Fixed:
		case f.Status == problem:
			problems++
		case f.Status == warning:
			warnings++
		}
	}
	names := []string{}
	for _, f := range x.findings {
		names = append(names, f.Check)
	}
	err := x.env.Print(struct {
		OK     bool      `json:"ok"`
		Checks []finding `json:"checks"`
		Fixes  []mended  `json:"fixes,omitempty"`
	}{problems == 0, x.findings, x.fixes}, slices.Compact(names), func() error {
		x.print(problems, warnings)
		x.printFixes(o)
		return nil
	})
	if err == nil && problems > 0 {
		return &command.ReportedError{}
	}
	return err
}

func (x *examination) print(problems, warnings int) {
	e := x.env
	colors := map[string]text.Color{ok: text.FgGreen, warning: text.FgYellow, problem: text.FgRed}
	for _, f := range x.findings {
		mark := screen.Paint(e, colors[f.Status], fmt.Sprintf("%-7s", f.Status))
		fmt.Fprintf(e.Out, "%s  %-10s  %s\n", mark, f.Check, screen.Line(f.Detail))
		if f.Fix != "" {
			fmt.Fprintf(e.Out, "%s->  %s\n", strings.Repeat(" ", 21), screen.Line(f.Fix))
		}
	}
	fmt.Fprintf(e.Out, "%s, %s, %s\n", command.Count(len(x.findings), "check"), command.Count(problems, "problem"), command.Count(warnings, "warning"))
}
