package config

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// FromValues returns the settings that values are, as the registry shows them: by key, as
// text. A key that is missing or not known here keeps its default, since the registry may be
// of another version; that the values are within their limits is the registry's promise. It
// reads no outbound and no channels.
func FromValues(values map[string]string) Config {
	c := Default()
	for i := range fields {
		if text, ok := values[fields[i].Key]; ok {
			_ = fields[i].Parse(&c, text)
		}
	}
	return c
}

// TurnConfig returns what a runner needs of the settings, for a turn and for what shows or
// does a part of one. What depends on the directory of the agent or on the author of a message
// is added by the caller.
func (c *Config) TurnConfig() *registryv1.TurnConfig {
	return &registryv1.TurnConfig{
		Provider: c.Pai.Provider, Model: c.Pai.Model, ContextWindow: int64(c.ContextWindow), MaxOutputTokens: int64(c.MaxOutputTokens),
		MaxAttempts: int32(c.Retry.MaxAttempts), RetryMaxAge: durationpb.New(c.Retry.MaxAge), Timeout: durationpb.New(c.Run.Timeout),
		SandboxMode: c.Sandbox.Mode, SandboxNetwork: c.Sandbox.Network,
		ReplyBreak: c.Reply.Break, MessageTool: c.Reply.MessageTool,
		AskApproval:   c.Approvals == "ask" && (c.Sandbox.Mode == "off" || c.Sandbox.Network),
		WorkdirShared: c.Workdir.Shared, WorkdirSync: c.Workdir.Sync == "snapshot", WorkdirMaxBytes: int64(c.Workdir.MaxMiB) << 20, WorkdirIgnore: strings.Fields(c.Workdir.Ignore),
		Compaction: &registryv1.CompactionConfig{
			Strategy: c.Compaction.Strategy, AtPercent: int32(c.Compaction.AtPercent), AfterTurns: int32(c.Compaction.AfterTurns),
			KeepTokens: int64(c.Compaction.KeepTokens), PeerEvery: int32(c.Compaction.PeerEvery), AgentEvery: int32(c.Compaction.AgentEvery),
			Share: c.Memory.Share, RecentMessages: int32(c.Context.RecentMessages),
		},
	}
}
