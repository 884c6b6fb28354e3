package runner

import (
	"context"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// ListServers returns the MCP servers of an agent and their states on this runner.
func (s *Service) ListServers(ctx context.Context, req *runnerpb.ListServersRequest) (*runnerpb.ListServersResponse, error) {
	config, _, err := s.turnConfig(ctx, &registrypb.GetTurnConfigRequest{AgentId: req.GetAgentId()})
	if err != nil {
		return nil, err
	}
	return &runnerpb.ListServersResponse{Servers: s.servers.List(req.GetAgentId(), config)}, nil
}

// StartServer starts an MCP server for an agent, and reports its tools.
func (s *Service) StartServer(ctx context.Context, req *runnerpb.StartServerRequest) (*runnerpb.StartServerResponse, error) {
	config, _, err := s.turnConfig(ctx, &registrypb.GetTurnConfigRequest{AgentId: req.GetAgentId()})
	if err != nil {
		return nil, err
	}
	server, err := s.servers.Start(ctx, req.GetAgentId(), config, req.GetServer(), req.GetRestart())
	if err != nil {
		return nil, err
	}
	return &runnerpb.StartServerResponse{Server: server}, nil
}
