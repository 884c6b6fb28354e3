package approvals

import (
	"context"
	"strings"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

// Cancel ends the approvals that a turn waits for, or with an empty turn those of the agent:
// they expire now.
func (s *Service) Cancel(ctx context.Context, agent, turn string) error {
	by := endOfTurn
	if turn == "" {
		by = stopOfAgent
	}
	const page = 200
	for after := ""; ; {
		list, err := s.Approvals.Approvals(ctx, after, agent, pending, page)
		if err != nil {
			return s.Fault(agent, "", err)
		}
		for _, a := range list {
			if after = a.ID; turn != "" && !strings.HasPrefix(a.Key, turn+":") {
				continue
			}
			if _, err := s.change(ctx, a.ID, func(a *store.Approval) (*store.ExecPolicy, error) {
				if a.State == pending {
					closeOf(a, by)
				}
				return nil, nil
			}); err != nil && !fault.Is(err, fault.ApprovalClosed) {
				return err
			}
		}
		if len(list) < page {
			return nil
		}
	}
}
