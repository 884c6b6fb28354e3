package feed

import (
	"context"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/internal/pause"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// ApprovalChange reports that a command of the agent waits for approval, or was answered.
type ApprovalChange struct{ Approval *registry.Approval }

// Asks reports every command of the agent that a person is asked about, also of
// those that wait already, and of each answer. A registry that was away reports again
// what waits.
func (s *Source) Asks(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := s.Env.Approvals().WatchApprovals(ctx, &registry.WatchApprovalsRequest{})
		for err == nil {
			var r *registry.WatchApprovalsResponse
			if r, err = stream.Recv(); err == nil && r.GetApproval().GetAgentId() == s.Agent {
				s.Send(ApprovalChange{r.GetApproval()})
			}
		}
		_ = pause.For(ctx, again)
	}
}

// answers are the beginnings of what is shown after an answer.
var answers = map[registry.ApprovalDecision]string{
	registry.ApprovalDecision_APPROVAL_DECISION_ONCE: "approved, once: ", registry.ApprovalDecision_APPROVAL_DECISION_ALWAYS: "approved, always: ",
	registry.ApprovalDecision_APPROVAL_DECISION_DENY: "denied: ",
}

// gist is how many columns of a command are repeated after the answer.
const gist = 50

// Answer answers the question about a command.
func (s *Source) Answer(ctx context.Context, id string, d registry.ApprovalDecision) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		r, err := s.Env.Approvals().ResolveApproval(ctx, &registry.ResolveApprovalRequest{ApprovalId: id, Decision: d})
		if err != nil {
			return "", err
		}
		return answers[d] + ansi.Truncate(screen.Line(r.GetApproval().GetCommand()), gist, "…"), nil
	})
}
