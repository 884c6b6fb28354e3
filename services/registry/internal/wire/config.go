package wire

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// QueueMode is a mode as the settings write it.
func QueueMode(mode string) registryv1.QueueMode {
	return registryv1.QueueMode(registryv1.QueueMode_value["QUEUE_MODE_"+strings.ToUpper(mode)])
}

// CreatesAgents reports whether an agent may ask for new ones: the system agent that
// speaks with people (S0-21), and no other.
func CreatesAgents(set *agentdir.Agent) bool {
	return set.ID == "admin" && set.Config.Kind == "system"
}

// TurnConfig is what a runner needs of an agent's settings for a turn of a conversation. What
// depends on who wrote, such as NotifyPeer, is added for each turn.
func TurnConfig(set *agentdir.Agent, at config.Conversation) *registryv1.TurnConfig {
	out := set.Config.TurnConfig(at, set.AccountTools())
	// What nobody chose is left to the runner, who knows which provider has a key.
	if v, err := set.Get("pai.provider"); err == nil && v.Origin == "default" {
		out.Provider = ""
	}
	if v, err := set.Get("pai.model"); err == nil && v.Origin == "default" {
		out.Model = ""
	}
	for _, s := range set.Secrets {
		out.Secrets = append(out.Secrets, &registryv1.Secret{Name: s.Name, Ref: s.Ref, Hosts: s.Hosts})
	}
	for _, s := range set.Servers {
		out.Mcp = append(out.Mcp, server(s))
	}
	out.CreatesAgents, out.Workdir, out.SessionsDir = CreatesAgents(set), set.Workspace, set.Dir.Sessions()
	if box := out.GetSandbox(); box.GetScratch() != "" {
		box.Scratch = set.Dir.Scratch(box.GetScratch())
		if box.GetAccess() == config.AccessNone {
			// Also for a runner that does not know the field. What is in it is not the working directory
			// that the registry keeps.
			out.Workdir, out.WorkdirSync = box.GetScratch(), false
		}
	}
	return out
}

// server converts an MCP server; its pins are added for each turn.
func server(s layer.Server) *registryv1.McpServer {
	return &registryv1.McpServer{
		Name: s.Name, Command: s.Command, Url: s.URL, Env: s.Env, Headers: s.Headers, InWorkdir: s.InWorkdir, Paths: s.Paths, Unconfined: s.Unconfined,
		Network: s.Network.Open, NetworkHosts: s.Network.Hosts, Allow: s.Allow, Deny: s.Deny, Classes: s.Classes, Timeout: durationpb.New(s.Timeout),
	}
}
