package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/hook"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// queueModes are the modes by their words in the settings.
var queueModes = map[string]registryv1.QueueMode{
	"followup": registryv1.QueueMode_QUEUE_MODE_FOLLOWUP, "collect": registryv1.QueueMode_QUEUE_MODE_COLLECT,
	"steer": registryv1.QueueMode_QUEUE_MODE_STEER, "interrupt": registryv1.QueueMode_QUEUE_MODE_INTERRUPT,
}

// QueueMode is a mode as the settings write it.
func QueueMode(mode string) registryv1.QueueMode { return queueModes[mode] }

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
	for _, p := range set.Programs {
		if out.GetPrograms() == nil {
			out.Programs = &registryv1.ProgramTools{}
		}
		out.Programs.List = append(out.Programs.List, &registryv1.ProgramTool{
			Name: p.Name, Description: p.Description, Argv: p.Argv, Schema: p.Schema, Stdin: p.Stdin, Network: p.Network.Open, NetworkHosts: p.Network.Hosts,
			Timeout: durationpb.New(p.Timeout), Class: p.Class,
		})
		if p.Network.Open || out.GetSandboxMode() == config.SandboxOff {
			out.Programs.Exec = set.Config.Tools.Exec.Policy()
		}
	}
	if set.Config.Outbound == nil {
		for _, a := range set.Accounts {
			if a.Sends() {
				out.Accounts = append(out.Accounts, a.Name)
			}
		}
	}
	if len(set.Hooks) > 0 {
		out.Hooks = hook.Proto(hook.For(set.Hooks, set.ID, hook.OfTurn()...))
	}
	out.QueueMode = QueueMode(set.Config.Queue.Mode)
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
