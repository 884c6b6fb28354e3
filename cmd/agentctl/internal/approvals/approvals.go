// Package approvals implements the command `agentctl approvals`: it lists commands of
// agents that wait for approval, and approves or denies them.
//
// The registry stores the approvals and decides what each is for and how long it is
// valid.
package approvals

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// question is an approval for programs.
type question struct {
	ID        string    `json:"id"`
	AgentID   string    `json:"agent_id"`
	ThreadID  string    `json:"thread_id"`
	Command   string    `json:"command"`
	Cwd       string    `json:"cwd"`
	Reason    string    `json:"reason"`
	Digest    string    `json:"sha256"`
	State     string    `json:"state"`
	Requested time.Time `json:"requested_at"`
	Expires   time.Time `json:"expires_at"`
}

func of(a *registry.Approval) question {
	return question{
		a.GetApprovalId(), a.GetAgentId(), a.GetThreadId(), a.GetCommand(), a.GetCwd(), a.GetReason(), a.GetDigest(),
		command.Word(a.GetState(), "APPROVAL_STATE_", "unspecified"), a.GetRequestedAt().AsTime(), a.GetExpiresAt().AsTime(),
	}
}

// Command answers the command approvals.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "approvals",
		Short: "Approve or deny commands outside the sandbox",
		Long: `Approve or deny commands outside the sandbox, or with network access. Agents with
'approvals: ask' in their settings ask for approval. An approval is valid for one command,
once; without an answer within five minutes the command is denied. The agent admin also
needs approval to create an agent.`,
		Example: `  agentctl approvals list
  agentctl approvals watch
  agentctl approvals approve 019aa2c1f3e5b7d21`,
	}, listCommand(e), watchCommand(e), resolveCommand(e, "approve", true, "Approve commands, once"), resolveCommand(e, "deny", false, "Deny commands"))
}

func listCommand(e *command.Env) *cobra.Command {
	var agent string
	var all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the commands that wait for approval",
		Example: `  agentctl approvals list
  agentctl approvals list --all --agent alice`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := e.MustExist(c.Context(), agent); err != nil {
				return err
			}
			req := &registry.ListApprovalsRequest{AgentId: agent, State: registry.ApprovalState_APPROVAL_STATE_PENDING}
			if all {
				req.State = registry.ApprovalState_APPROVAL_STATE_UNSPECIFIED
			}
			list, err := command.Pages(func(token string) ([]*registry.Approval, string, error) {
				req.PageToken = token
				r, err := e.Approvals().ListApprovals(c.Context(), req)
				return r.GetApprovals(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			out := []question{}
			for _, a := range list {
				out = append(out, of(a))
			}
			t := screen.NewTable(e, "id", "agent", "state", "ends", "thread", "cwd", "why", "command").Wide("thread", "cwd").Drop("why", "state")
			return screen.List(t.None("no approvals"), out, func(q question) []any {
				return []any{q.ID, q.AgentID, q.State, q.Expires.Local().Format(time.TimeOnly), q.ThreadID, q.Cwd, q.Reason, q.Command}
			})
		},
	}
	command.AgentFlag(c, &agent, "only this agent")
	c.Flags().BoolVar(&all, "all", false, "include answered ones")
	return c
}

func resolveCommand(e *command.Env, verb string, yes bool, short string) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " APPROVAL...",
		Short:   short,
		Example: "  agentctl approvals " + verb + " 019aa2c1f3e5b7d21",
		ValidArgsFunction: e.Complete(func(ctx context.Context, e *command.Env, _ []string) ([]string, error) {
			var out []string
			r, err := e.Approvals().ListApprovals(ctx, &registry.ListApprovalsRequest{State: registry.ApprovalState_APPROVAL_STATE_PENDING})
			for _, a := range r.GetApprovals() {
				out = append(out, a.GetApprovalId()+"\t"+screen.Line(a.GetCommand()))
			}
			return out, err
		}),
		RunE: func(c *cobra.Command, ids []string) error {
			out := []question{}
			for _, id := range ids {
				r, err := e.Approvals().ResolveApproval(c.Context(), &registry.ResolveApprovalRequest{ApprovalId: id, Approve: yes})
				if err != nil {
					return err
				}
				out = append(out, of(r.GetApproval()))
			}
			return e.Print(out, ids, func() error {
				for _, q := range out {
					fmt.Fprintf(e.Out, "%s %s: %s\n", q.ID, q.State, screen.Line(q.Command))
				}
				return nil
			})
		},
	}
}
