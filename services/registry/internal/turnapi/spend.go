package turnapi

import (
	"context"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// spend counts what a finished turn has used, for agents that have a quota. A
// turn that cannot be read now is not counted: a quota stops no work.
func (s *Service) spend(ctx context.Context, set *agentdir.Agent, from string, req *registryv1.FinishTurnRequest) {
	if !set.Config.Quota.Daily() {
		return
	}
	t, err := s.Store.Turn(ctx, req.GetAgentId(), store.TurnQuery{InboxID: req.GetInboxId(), Key: req.GetKey(), Route: wire.ThreadOf})
	if err == nil {
		s.Quota.Spend(ctx, &set.Config, req.GetAgentId(), from, t.Usage.Input, t.Usage.Output)
	}
}
