package runner

import (
	"context"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/sandbox/docker"
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// ListTools returns the tools of this runner and what the settings make of them in a conversation
// of an agent, by the code that makes the set of a turn.
func (s *Service) ListTools(ctx context.Context, req *runnerpb.ListToolsRequest) (*runnerpb.ListToolsResponse, error) {
	c, key, err := s.turnConfig(ctx, &registrypb.GetTurnConfigRequest{AgentId: req.GetAgentId(), SessionKey: req.GetSessionKey()})
	if err != nil {
		return nil, err
	}
	set, err := s.driver.Tools.For(ctx, req.GetAgentId(), c)
	if err != nil {
		return nil, err
	}
	out := &runnerpb.ListToolsResponse{Layers: set.Layers(), Sandbox: s.sandboxInfo(ctx, c, key)}
	host := c.GetSandboxMode() == string(sandbox.Off)
	for _, e := range set.Entries() {
		network := host || e.Spec.Group == "" && (c.GetSandboxNetwork() || len(c.GetNetworkHosts()) > 0) // a program of the home has its own
		out.Tools = append(out.Tools, &runnerpb.Tool{
			Name: e.Spec.Name, PolicyName: toolpolicy.Canonical(e.Spec.Name), Description: e.Spec.Description, Class: e.Class.String(),
			Sends: sends(e.Spec.Needs, network), Denied: e.Denied, OverLimit: e.OverLimit, Schema: string(e.Spec.Schema), Server: e.Spec.Server, AllowedBy: e.AllowedBy,
		})
	}
	return out, nil
}

// levelDocker is the level of a container.
const levelDocker = "docker"

// sandboxInfo is where the programs of a conversation run.
func (s *Service) sandboxInfo(ctx context.Context, c *registrypb.TurnConfig, key string) *runnerpb.SandboxInfo {
	box := c.GetSandbox()
	out := &runnerpb.SandboxInfo{
		Sandboxed: c.GetSandboxMode() != string(sandbox.Off), Mode: box.GetMode(), Scope: box.GetScope(), ScopeKey: box.GetKey(), Workspace: box.GetAccess(),
		Network: "off", HostCommands: "not possible",
	}
	if n := (config.Network{Open: c.GetSandboxNetwork(), Hosts: c.GetNetworkHosts()}); n.Open || len(n.Hosts) > 0 {
		out.Network = n.String()
	}
	switch {
	case box.GetMode() != config.SandboxNonMain:
	case out.GetSandboxed():
		out.Why = "session is not main"
	case key == "":
		out.Why = "session has no key"
	default:
		out.Why = "session is main"
	}
	if !out.GetSandboxed() {
		out.Network = "open"
		out.HostCommands = "by policy " + c.GetExec().GetSecurity() + ", ask " + c.GetExec().GetAsk()
		return out
	}
	if box.GetDocker() != nil {
		out.Level = levelDocker
		if err := s.sandboxes.docker.Problem(ctx, docker.BoxOf(c, "")); err != nil {
			out.Problem, out.ProblemFix = fault.From(err).What, fault.From(err).Fix
		}
		return out
	}
	report, err := s.sandboxes.reportOf(c.GetSandboxMode())
	if out.Level = string(report.Level); err != nil {
		out.Level = string(sandbox.LevelNone)
	}
	return out
}

// sends is how a tool can send data out; network: the programs of tools have it.
func sends(n toolset.Needs, network bool) string {
	switch {
	case n&toolset.Network != 0:
		return "network"
	case n&toolset.Program != 0 && network:
		return "program"
	case n&toolset.Peer != 0:
		return "peer"
	}
	return ""
}
