package approvals

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Make creates an agent, for the agent that asked, under the approval, and returns its
// directory.
type Make func(ctx context.Context, by, approval string, r broker.Request) (dir string, err error)

// agentRequest converts the request for a new agent.
func agentRequest(n *registryv1.NewAgent) broker.Request {
	return broker.Request{
		AgentID: n.GetAgentId(), Provider: n.GetProvider(), Model: n.GetModel(),
		System: n.GetKind() == registryv1.AgentKind_AGENT_KIND_SYSTEM,
	}
}

// checkCreate refuses a question about a new agent that could not be created, before a
// person is asked, and one whose words or digest do not match the agent.
func (s *Service) checkCreate(ctx context.Context, req *registryv1.RequestApprovalRequest) error {
	if req.GetCreateAgent() == nil {
		return nil
	}
	by, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return err
	}
	set, err := s.Agents.Settings(ctx, by)
	if err != nil {
		return err
	}
	r := agentRequest(req.GetCreateAgent())
	if err = layout.ValidID(r.AgentID); err == nil {
		err = r.Check()
	}
	switch {
	case !wire.CreatesAgents(set):
		return fault.New(codes.PermissionDenied, fault.PermissionDenied, fmt.Sprintf("agent '%s' is not permitted to create agents", by.ID), "ask the admin agent, or the owner")
	case err != nil:
		return err
	case req.GetCommand() != r.Words() || req.GetDigest() != r.Digest():
		return wire.Bad("the question is not about the agent that it names", "ask with the words and the digest of the request")
	}
	return nil
}

// checkAbsent refuses an agent that exists already.
func (s *Service) checkAbsent(n *registryv1.NewAgent) error {
	if n == nil {
		return nil
	}
	if s.Agents.Missing(n.GetAgentId()) {
		return nil // the creation reports what is wrong, if anything
	}
	d, err := s.Home.Agent(n.GetAgentId())
	if err != nil {
		return err
	}
	return d.Exists()
}

// create creates the approved agent. In the repeat of a call whose response was lost it
// exists already, or is created now.
func (s *Service) create(ctx context.Context, a store.Approval, n *registryv1.NewAgent, first bool) (string, error) {
	dir, err := s.Make(ctx, a.Agent, a.ID, agentRequest(n))
	if !first && fault.Is(err, fault.AgentExists) {
		return s.Agents.Place(n.GetAgentId()), nil
	}
	return dir, err
}
