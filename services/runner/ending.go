package runner

import (
	"context"

	"github.com/theclaw/agents/internal/rpc/runs/wording"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// ending is the end of a run as its caller reads it (S1-13). The reply to a run that
// was merged into another one is that one's.
func (s *Service) ending(ctx context.Context, t *registrypb.Turn) *runnerpb.WaitRunResponse {
	out := &runnerpb.WaitRunResponse{
		Status: runnerpb.RunStatus_RUN_STATUS_OK, StartedAt: t.GetClaimedAt(), EndedAt: t.GetFinishedAt(),
		InputTokens: t.GetUsage().GetInput(), OutputTokens: t.GetUsage().GetOutput(), MergedInto: t.GetLeader(),
	}
	switch t.GetFate() {
	case registrypb.Fate_FATE_DEAD, registrypb.Fate_FATE_ABORTED:
		out.Status, out.Error, out.ErrorCode = runnerpb.RunStatus_RUN_STATUS_ERROR, t.GetError(), endCode(t)
		if out.GetError() == "" {
			out.Error = wording.Early
		}
		out.Payloads = []*runnerpb.Payload{{Kind: runnerpb.PayloadKind_PAYLOAD_KIND_ERROR, Text: out.GetError()}}
	case registrypb.Fate_FATE_MERGED:
		if leader, err := s.account(ctx, t.GetAgentId(), t.GetLeader(), 0); err == nil {
			with := s.ending(ctx, leader)
			out.Text, out.Payloads = with.GetText(), with.GetPayloads()
		}
	case registrypb.Fate_FATE_REPLIED, registrypb.Fate_FATE_SILENT:
		// A turn that ends in silence may have said all it had to say before.
		if list := payloads(s.driver.Tools, t); lastText(list) != "" {
			out.Payloads, out.Text = list, lastText(list)
		} else if t.GetCommand() != nil { // no model said it
			out.Text = s.answer(ctx, t)
			out.Payloads = []*runnerpb.Payload{{Kind: runnerpb.PayloadKind_PAYLOAD_KIND_TEXT, Text: out.GetText()}}
		}
	default:
	}
	return out
}

// answer reads the reply of a turn; empty where it cannot be read now.
func (s *Service) answer(ctx context.Context, t *registrypb.Turn) string {
	r, err := s.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: t.GetAgentId(), InboxId: t.GetInboxId(), WithReply: true})
	if err != nil {
		return ""
	}
	return r.GetReply()
}
