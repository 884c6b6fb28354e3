package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
)

func resolveCommand(e *command.Env, approve bool) *cobra.Command {
	yes := !approve
	c := &cobra.Command{
		Use:   "deny SERVER [TOOL...]",
		Short: "Deny tools of a server",
		Long: `Deny tools of a server, or all that are new or changed. A tool that was approved is withdrawn
from the next turn on. A denied tool waits again when its server changes it.`,
		Example: `  agentctl mcp deny github
  agentctl mcp deny github delete_file`,
	}
	if approve {
		c = &cobra.Command{
			Use:   "approve SERVER [TOOL...]",
			Short: "Approve tools of a server",
			Long: `Approve tools of a server, or all that are new or changed. Each is shown completely before
you are asked: a new one with its description and schema, a changed one with what differs
from what was approved.`,
			Example: `  agentctl mcp approve github
  agentctl mcp approve github list_issues get_issue --yes`,
		}
		c.Flags().BoolVar(&yes, "yes", false, "approve without asking")
	}
	c.ValidArgsFunction = e.Complete(func(ctx context.Context, e *command.Env, given []string) ([]string, error) {
		if len(given) == 0 {
			return command.OfferServers(ctx, e, given)
		}
		tools, _, err := pins(ctx, e, given[0])
		var out []string
		for _, t := range tools {
			if t.waits() && !slices.Contains(given[1:], t.Tool) {
				out = append(out, t.Tool+"\t"+t.State)
			}
		}
		return out, err
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		tools, digest, err := pins(c.Context(), e, args[0])
		if err != nil {
			return err
		}
		in, _ := e.Terminal()
		if !yes && (in == nil || e.Data()) {
			return command.Unasked(c)
		}
		names := named(args[0], tools, args[1:])
		chosen := slices.DeleteFunc(slices.Clone(tools), func(t tool) bool {
			return len(names) == 0 && !t.waits() || len(names) > 0 && !slices.Contains(names, t.Tool)
		})
		if len(chosen) == 0 && len(names) == 0 {
			return e.Print([]tool{}, nil, func() error {
				e.Note("no tools of %s are new or changed", args[0])
				return nil
			})
		}
		if !yes && len(chosen) == max(len(names), 1) || !yes && len(names) == 0 { // else the registry names the tool that is not there
			for _, t := range chosen {
				fmt.Fprint(e.Out, shown(t))
			}
			if yes, err = screen.Confirm(c.Context(), e, fmt.Sprintf("Approve %s of %s?", command.Count(len(chosen), "tool"), args[0])); err != nil || !yes {
				e.Note("nothing was approved")
				return err
			}
		}
		after, err := resolve(c.Context(), e, args[0], names, approve, digest)
		if err != nil {
			return err
		}
		var of []string
		for _, t := range chosen {
			of = append(of, t.Tool)
		}
		after = slices.DeleteFunc(after, func(t tool) bool { return !slices.Contains(of, t.Tool) })
		verb := map[bool]string{true: "approved", false: "denied"}[approve]
		return e.Print(after, of, func() error {
			_, err := fmt.Fprintf(e.Out, "%s: %s %s: %s\n", args[0], command.Count(len(of), "tool"), verb, screen.Line(strings.Join(of, ", ")))
			return err
		})
	}
	return c
}

// named are tools by their names at the server; a person may write them with the name of the server before.
func named(server string, tools []tool, names []string) (out []string) {
	for _, n := range names {
		if short, ok := strings.CutPrefix(n, server+"__"); ok && !slices.ContainsFunc(tools, func(t tool) bool { return t.Tool == n }) {
			n = short
		}
		if !slices.Contains(out, n) { // a name that is there twice is one tool to ask for
			out = append(out, n)
		}
	}
	return out
}

// shown is what a person reads before an approval: all of a new tool, and of a changed one what is different.
func shown(t tool) string {
	head := fmt.Sprintf("%s %s (%s)\n", t.State, screen.Line(t.name()), screen.Line(t.Class))
	if t.State == stateChanged {
		return head + difference(t)
	}
	return head + screen.Clean(pretty(t.Reported))
}

// difference is what a server has changed since the approval, as a unified diff.
func difference(t tool) string {
	name := screen.Line(t.name())
	return screen.Clean(udiff.Unified("approved/"+name, "reported/"+name, pretty(t.Approved), pretty(t.Reported)))
}

func diffCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "diff SERVER",
		Short: "Show what differs from what is approved",
		Long: `Show what a server reports that differs from what is approved: new tools completely, of
changed ones what is different, and those that are gone. A tool that was denied as it is
is not shown.`,
		Example: `  agentctl mcp diff github
  agentctl mcp diff github --json | jq -r '.[] | select(.state == "changed") | .tool'`,
		RunE: func(c *cobra.Command, args []string) error {
			tools, _, err := pins(c.Context(), e, args[0])
			if err != nil {
				return err
			}
			tools = slices.DeleteFunc(tools, func(t tool) bool { return !t.waits() && t.State != stateGone })
			names := make([]string, len(tools))
			for i, t := range tools {
				names[i] = t.Tool
			}
			return e.Print(tools, names, func() error {
				if len(tools) == 0 {
					e.Note("%s offers what is approved", args[0])
				}
				for _, t := range tools {
					fmt.Fprint(e.Out, difference(t))
				}
				return nil
			})
		},
	}
}
