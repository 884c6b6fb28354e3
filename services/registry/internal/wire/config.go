package wire

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
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

// TurnConfig is what a runner needs of an agent's settings. What depends on who wrote, such
// as NotifyPeer, is added for each turn.
func TurnConfig(set *agentdir.Agent) *registryv1.TurnConfig {
	c := set.Config
	provider, model := c.Pai.Provider, c.Pai.Model
	// What nobody chose is left to the runner, who knows which provider has a key.
	if v, err := set.Get("pai.provider"); err == nil && v.Origin == "default" {
		provider = ""
	}
	if v, err := set.Get("pai.model"); err == nil && v.Origin == "default" {
		model = ""
	}
	return &registryv1.TurnConfig{
		Provider: provider, Model: model, ContextWindow: int64(c.ContextWindow), MaxOutputTokens: int64(c.MaxOutputTokens),
		MaxAttempts: int32(c.Retry.MaxAttempts), RetryMaxAge: durationpb.New(c.Retry.MaxAge), Timeout: durationpb.New(c.Run.Timeout),
		SandboxMode: c.Sandbox.Mode, SandboxNetwork: c.Sandbox.Network,
		ReplyBreak: c.Reply.Break, MessageTool: c.Reply.MessageTool, CreatesAgents: CreatesAgents(set),
		AskApproval:   c.Approvals == "ask" && (c.Sandbox.Mode == "off" || c.Sandbox.Network),
		WorkdirShared: c.Workdir.Shared, WorkdirSync: c.Workdir.Sync == "snapshot", WorkdirMaxBytes: int64(c.Workdir.MaxMiB) << 20, WorkdirIgnore: strings.Fields(c.Workdir.Ignore),
		Workdir: set.Dir.Workdir(), SessionsDir: set.Dir.Sessions(), Compaction: &registryv1.CompactionConfig{
			Strategy: c.Compaction.Strategy, AtPercent: int32(c.Compaction.AtPercent), AfterTurns: int32(c.Compaction.AfterTurns),
			KeepTokens: int64(c.Compaction.KeepTokens), PeerEvery: int32(c.Compaction.PeerEvery), AgentEvery: int32(c.Compaction.AgentEvery),
			Share: c.Memory.Share, RecentMessages: int32(c.Context.RecentMessages),
		},
	}
}
