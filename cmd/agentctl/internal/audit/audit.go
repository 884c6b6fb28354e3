// Package audit implements the command `agentctl audit`: who was allowed to do what, who
// was refused, which tools ran and what was sent.
//
// It reads the files of the home and needs no running service. What an entry contains
// and what makes the log trustworthy is defined by package internal/audit.
//
// It is a package of its own because each command of agentctl is one.
package audit

import (
	"cmp"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/audit"
	"github.com/theclaw/agents/internal/fault"
)

// Command answers the command audit.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "audit",
		Short: "Show the audit log, and verify that it was not changed",
		Example: `  agentctl audit show
  agentctl audit verify`,
	}, showCommand(e), verifyCommand(e))
}

func showCommand(e *command.Env) *cobra.Command {
	var agent, action, outcome string
	var since time.Time
	last := 100
	c := &cobra.Command{
		Use:   "show",
		Short: "Show changes, refusals, tools and deliveries, newest last",
		Example: `  agentctl audit show
  agentctl audit show --outcome refused --since 24h
  agentctl audit show --agent alice --action tool -n 0 --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := e.Home()
			if err != nil {
				return err
			}
			list := []audit.Entry{}
			err = audit.Read(home.AuditDir(), func(x audit.Entry) error {
				if (agent == "" || x.Agent == agent) && (action == "" || x.Action == action) && (outcome == "" || x.Outcome == outcome) && !x.At.Before(since) {
					if list = append(list, x); last > 0 && len(list) > 2*last {
						list = append(list[:0], list[len(list)-last:]...)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if last > 0 && len(list) > last {
				list = list[len(list)-last:]
			}
			if _, err := os.Stat(home.AuditDir()); err != nil {
				return fault.Wrap(fault.New(codes.NotFound, fault.InvalidArgument, "there is no audit log in "+home.AuditDir(), "it begins when a registry first starts here"), err)
			}
			t := screen.NewTable(e, "seq", "at", "actor", "action", "agent", "outcome", "detail").Drop("seq", "actor")
			return screen.List(t, list, func(x audit.Entry) []any {
				return []any{x.Seq, x.At.Format("2006-01-02 15:04:05"), cmp.Or(x.Actor, x.From), x.Action, x.Agent, x.Outcome, x.Detail}
			})
		},
	}
	command.TextFlag(c.Flags(), &agent, "agent", command.NewAgent, "only this agent") // which may be removed
	command.TextFlag(c.Flags(), &action, "action", command.Term, "only this action: StartAgent, SetAgentConfig, tool, delivery ...")
	command.TextFlag(c.Flags(), &outcome, "outcome", command.Term, "only this outcome: allowed, refused, failed, sent ...")
	command.SinceFlag(c, &since, "only entries since then")
	command.NumberFlag(c, &last, "limit,n", 0, math.MaxInt, "maximum number of entries, newest; 0: all")
	command.NumberFlag(c, &last, "last", 0, math.MaxInt, "the same as --limit")
	_ = c.Flags().MarkHidden("last")
	return c
}

func verifyCommand(e *command.Env) *cobra.Command {
	var head string
	c := &cobra.Command{
		Use:   "verify",
		Short: "Verify every byte, and name the first changed entry",
		Long: `Verify that no entry was changed, removed, inserted or moved. Otherwise the first such
entry is named, and the exit code is 1.

Whoever may write the files can also replace the complete log. To detect that, store the
hash that this command prints elsewhere, and pass it later with --head.`,
		Example: `  agentctl audit verify
  agentctl audit verify --head 5f0c...`,
		RunE: func(*cobra.Command, []string) error {
			home, err := e.Home()
			if err != nil {
				return err
			}
			r, err := audit.Verify(home.AuditDir(), head)
			if err != nil {
				return err
			}
			return e.Show(r, r.Head, "%d entries, all as they were written; the newest has the hash %s", r.Entries, r.Head)
		},
	}
	command.TextFlag(c.Flags(), &head, "head", command.Digest, "earlier hash that the log must still contain")
	return c
}
