package runner

import (
	"context"

	"github.com/theclaw/agents/internal/toolpolicy"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

var classNames = map[toolset.Class]string{toolset.Read: "read", toolset.Idempotent: "idempotent", toolset.Effect: "effect"}

// ListTools returns the tools of this runner and what the settings of an agent make of them,
// by the code that makes the set of a turn.
func (s *Service) ListTools(ctx context.Context, req *runnerpb.ListToolsRequest) (*runnerpb.ListToolsResponse, error) {
	config, err := s.turnConfig(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	set, err := s.driver.Tools.For(ctx, req.GetAgentId(), config)
	if err != nil {
		return nil, err
	}
	out := &runnerpb.ListToolsResponse{Layers: set.Layers()}
	for _, e := range set.Entries() {
		out.Tools = append(out.Tools, &runnerpb.Tool{
			Name: e.Spec.Name, PolicyName: toolpolicy.Canonical(e.Spec.Name), Description: e.Spec.Description, Class: classNames[e.Class],
			Sends: sends(e.Spec.Needs, config.GetSandboxNetwork() || len(config.GetNetworkHosts()) > 0 || config.GetSandboxMode() == "off"), Denied: e.Denied, Schema: string(e.Spec.Schema), Server: e.Spec.Server,
		})
	}
	return out, nil
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
