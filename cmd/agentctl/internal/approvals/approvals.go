// Package approvals implements the command `agentctl approvals`: it lists commands of
// agents that wait for approval, approves or denies them, and shows and changes the policy
// that says which commands need none.
//
// The registry stores approvals and policy, and decides what each is for and how long it is
// valid.
package approvals

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/execpolicy"
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
	Kind      string    `json:"kind"`
	Summary   string    `json:"summary"`
	Always    []string  `json:"always"` // what the answer always would add
	Decision  string    `json:"decision"`
	By        string    `json:"by"`
	Requested time.Time `json:"requested_at"`
	Expires   time.Time `json:"expires_at"`
}

func of(a *registry.Approval) question {
	always := []string{}
	for _, p := range a.GetPatterns() {
		always = append(always, execpolicy.Entry{Pattern: p.GetPattern(), Args: p.GetArgs()}.String())
	}
	return question{
		a.GetApprovalId(), a.GetAgentId(), a.GetThreadId(), a.GetCommand(), a.GetCwd(), a.GetReason(), a.GetDigest(),
		command.Word(a.GetState(), "APPROVAL_STATE_", "unspecified"),
		command.Word(a.GetKind(), "APPROVAL_KIND_", ""), a.GetSummary(), always, command.Word(a.GetDecision(), "APPROVAL_DECISION_", ""), a.GetBy(),
		a.GetRequestedAt().AsTime(), a.GetExpiresAt().AsTime(),
	}
}

// Command answers the command approvals.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "approvals",
		Short: "Approve or deny commands outside the sandbox",
		Long: `Approve or deny commands outside the sandbox, or with network access. Agents ask for approval
as tools.exec.ask in their settings says. An approval is valid for one command, once, or with
--always also adds the program to the allow list of the agent; without an answer within
tools.approval_timeout the command is denied, unless tools.exec.ask_fallback says otherwise.
The agent admin also needs approval to create an agent.`,
		Example: `  agentctl approvals list
  agentctl approvals watch
  agentctl approvals approve 019aa2c1f3e5b7d21`,
	}, listCommand(e), watchCommand(e), approveCommand(e), resolveCommand(e, "deny", "Deny commands", func() registry.ApprovalDecision { return registry.ApprovalDecision_APPROVAL_DECISION_DENY }), policyCommand(e))
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

func approveCommand(e *command.Env) *cobra.Command {
	var always bool
	c := resolveCommand(e, "approve", "Approve commands, once or always", func() registry.ApprovalDecision {
		if always {
			return registry.ApprovalDecision_APPROVAL_DECISION_ALWAYS
		}
		return registry.ApprovalDecision_APPROVAL_DECISION_ONCE
	})
	c.Flags().BoolVar(&always, "always", false, "also add what 'agentctl approvals list --json' shows as always to the allow list")
	return c
}

func resolveCommand(e *command.Env, verb, short string, decision func() registry.ApprovalDecision) *cobra.Command {
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
				r, err := e.Approvals().ResolveApproval(c.Context(), &registry.ResolveApprovalRequest{ApprovalId: id, Decision: decision()})
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
