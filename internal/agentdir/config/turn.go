package config

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/toolpolicy"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// FromValues returns the settings that values are, as the registry shows them: by key, as
// text. A key that is missing or not known here keeps its default, since the registry may be
// of another version; that the values are within their limits is the registry's promise. It
// reads no outbound, no channels, and no lists of tools that are for the home or a provider.
func FromValues(values map[string]string) Config {
	c := Default()
	for i := range fields {
		if text, ok := values[fields[i].Key]; ok {
			_ = fields[i].Parse(&c, text)
		}
	}
	return c
}

// HomeKey is in front of the keys of [Config].HomeTools where they are shown.
const HomeKey = "agents.defaults."

// ToolKeys are the keys that are kept separately for home and agent.
func ToolKeys() []string { return []string{"tools.allow", "tools.also_allow", "tools.deny"} }

// ByProvider is in front of a provider in the keys of [ToolLists].ByProvider.
const ByProvider = "tools.by_provider."

// ForHome calls read, which reads settings of all agents of a home into c: the lists of
// tools are then those of the home, and those of the agent stay as they are.
func (c *Config) ForHome(read func()) {
	c.Tools.ToolLists, c.HomeTools = c.HomeTools, c.Tools.ToolLists
	read()
	c.Tools.ToolLists, c.HomeTools = c.HomeTools, c.Tools.ToolLists
}

func (w WebTool) limits() *registryv1.WebLimits {
	return &registryv1.WebLimits{MaxChars: int32(w.MaxChars), Timeout: durationpb.New(w.Timeout), AllowPrivate: w.AllowPrivate}
}

// ordinary are the default settings of tools. What equals them is not sent with each turn: a runner has the
// same.
var ordinary = Default().Tools

func (t *Tools) limits() *registryv1.ToolLimits {
	if t.Parallel == ordinary.Parallel && t.ResultChars == ordinary.ResultChars && t.OutputKeep == ordinary.OutputKeep && t.Read == ordinary.Read && slices.Equal(t.FS.Ignore, ordinary.FS.Ignore) {
		return nil
	}
	return &registryv1.ToolLimits{
		Parallel: int32(t.Parallel), ResultChars: int32(t.ResultChars),
		OutputKeepAge: durationpb.New(t.OutputKeep.Age), OutputKeepBytes: int64(t.OutputKeep.MaxMiB) << 20,
		ReadMaxBytes: int64(t.Read.MaxBytes), ReadMaxLines: int32(t.Read.MaxLines), FsSkip: t.FS.Ignore,
	}
}

func (t *Tools) search() *registryv1.WebSearch {
	if t.WebSearch == ordinary.WebSearch {
		return nil
	}
	return &registryv1.WebSearch{Provider: t.WebSearch.Provider, Url: t.WebSearch.URL, Key: t.WebSearch.Key, Results: int32(t.WebSearch.Results)}
}

// ToolLayers are the policies by which tools are allowed in a conversation, in the order of their
// numbers; those by provider are for [toolpolicy.ForModel]. In every profile reply.message_tool allows the tool
// for messages, and mcp.use all tools of servers. accounts are those of the home.
func (c *Config) ToolLayers(at Conversation, accounts AccountTools) []toolpolicy.Layer {
	var extra []string
	if c.Reply.MessageTool {
		extra = append(extra, "message")
	}
	for _, server := range c.MCP.Use {
		extra = append(extra, server+"__*")
	}
	layers := toolpolicy.Layers(c.Tools.Profile, c.HomeTools.Scope, c.Tools.Scope, extra...)
	layers = append(layers, toolpolicy.ProviderLayers(c.HomeTools.ByProvider, c.Tools.ByProvider)...)
	slices.SortStableFunc(layers, func(a, b toolpolicy.Layer) int { return a.Number - b.Number })
	if l, ok := accounts[at.Account][at.Kind]; ok && at.Kind != "" {
		layers = append(layers, toolpolicy.Layer{
			Number: toolpolicy.NumberConversation, Name: "conversation", Origin: "channels." + at.Account + ".tools." + at.Kind, Allow: l.Allow, Deny: l.Deny,
		})
	}
	if box := c.SandboxAt(at); box.Level != SandboxOff {
		if l := c.Tools.Sandbox; len(l.Allow)+len(l.Deny) > 0 {
			layers = append(layers, toolpolicy.Layer{Number: toolpolicy.NumberSandbox, Name: "sandbox", Origin: "tools.sandbox.tools", Allow: l.Allow, Deny: l.Deny})
		}
		if box.Access == AccessReadOnly {
			layers = append(layers, toolpolicy.Layer{Number: toolpolicy.NumberSandbox, Name: "sandbox, sandbox.workspace_access ro", Deny: toolpolicy.Writers})
		}
	}
	// Where the profile does not have the tool the layer would decide nothing, in every message.
	if c.Tools.WebSearch.Provider == searchOff && (len(layers) == 0 || toolpolicy.New(layers[:1]).Decide(toolpolicy.Tool{Name: "web_search"}).Allowed) {
		layers = append(layers, toolpolicy.Layer{Name: "tools.web_search.provider off", Deny: []string{"web_search"}})
	}
	return layers
}

// blocks are the bounds of blocks; nil: answers are sent at their end.
func (r Reply) blocks() *registryv1.ReplyBlocks {
	if r.Blocks != blocksOn {
		return nil
	}
	return &registryv1.ReplyBlocks{
		MinChars: int32(min(r.Block.Min, r.Block.Max)), MaxChars: int32(r.Block.Max), Break: r.Block.Break, Idle: durationpb.New(r.Block.Idle),
	}
}

// Policy is what decides on programs that leave the sandbox or have the network.
func (e Exec) Policy() *registryv1.ExecPolicy {
	return &registryv1.ExecPolicy{Security: e.Security, Ask: e.Ask, AskFallback: e.AskFallback, SafeBins: e.SafeBins}
}

// AccountTools are the lists of the accounts of a home, by the name of the account and the kind of
// conversation, which is dm, group or channel.
type AccountTools map[string]map[string]toolpolicy.Scope

// TurnConfig returns what a runner needs of the settings, for a turn of a conversation and for what
// shows or does a part of one. What depends on the directory of the agent or on the author of a
// message is added by the caller, and so is the directory of Sandbox.Scratch, which is a name here.
func (c *Config) TurnConfig(at Conversation, accounts AccountTools) *registryv1.TurnConfig {
	box := c.SandboxAt(at)
	out := &registryv1.TurnConfig{
		Provider: c.Pai.Provider, Model: c.Pai.Model, ContextWindow: int64(c.ContextWindow), MaxOutputTokens: int64(c.MaxOutputTokens),
		MaxAttempts: int32(c.Retry.MaxAttempts), RetryMaxAge: durationpb.New(c.Retry.MaxAge), Timeout: durationpb.New(c.Run.Timeout),
		SandboxMode: box.Level, SandboxNetwork: c.Sandbox.Network.Open, NetworkHosts: c.Sandbox.Network.Hosts,
		ReplyBreak: c.Reply.Break, MessageTool: c.Reply.MessageTool,
		WorkdirShared: c.Workdir.Shared, WorkdirSync: c.Workdir.Sync == "snapshot", WorkdirMaxBytes: int64(c.Workdir.MaxMiB) << 20, WorkdirIgnore: strings.Fields(c.Workdir.Ignore),
		Compaction: &registryv1.CompactionConfig{
			Strategy: c.Compaction.Strategy, AtPercent: int32(c.Compaction.AtPercent), AfterTurns: int32(c.Compaction.AfterTurns),
			KeepTokens: int64(c.Compaction.KeepTokens), PeerEvery: int32(c.Compaction.PeerEvery), AgentEvery: int32(c.Compaction.AgentEvery),
			Share: c.Memory.Share, RecentMessages: int32(c.Context.RecentMessages),
		},
	}
	out.ToolLimits, out.WebSearch = c.Tools.limits(), c.Tools.search()
	out.Sandbox = &registryv1.Sandbox{Mode: box.Mode, Scope: box.Scope, Key: box.Key, Access: box.Access, Scratch: box.Scratch}
	if box.Container != "" {
		out.Sandbox.Docker = c.container(box)
		out.SandboxNetwork = out.GetSandbox().GetDocker().GetNetwork() != networkNone
	}
	if e := c.Tools.Exec; box.Level == SandboxOff || out.GetSandboxNetwork() {
		out.Exec = e.Policy()
		out.AskApproval = e.Security != string(execpolicy.Full) || e.Ask == string(execpolicy.AskAlways)
	}
	if e := c.Tools.Elevated; e.Enabled {
		out.Elevated = &registryv1.Elevated{Mode: e.Default, Exec: c.Tools.Exec.Policy()}
	}
	if list := c.Tools.ExternalGuard; len(list) > 0 {
		out.ExternalGuard = &registryv1.ExternalGuard{Host: slices.Contains(list, GuardHost), Mcp: slices.Contains(list, GuardMCP)}
	}
	out.Blocks, out.Transcribe = c.Reply.blocks(), c.Media.Transcribe.config()
	out.Parts = &registryv1.ReplyParts{Verbose: c.Verbose, Reasoning: c.Reasoning}
	out.QuestionTimeout = durationpb.New(c.Tools.QuestionTimeout)
	out.WebFetch, out.Http = c.Tools.WebFetch.limits(), c.Tools.HTTP.limits()
	out.Presentation = c.Tools.Presentation
	x := c.Tools.Exec
	out.Processes = &registryv1.ProcessLimits{
		Max: int32(x.Background.Max), MaxAge: durationpb.New(x.Background.MaxAge), Notify: x.Background.Notify,
		Yield: durationpb.New(x.Yield), Timeout: durationpb.New(x.Timeout),
	}
	for _, l := range c.ToolLayers(at, accounts) {
		out.ToolLayers = append(out.ToolLayers, &registryv1.ToolLayer{
			Number: int32(l.Number), Name: l.Name, Origin: l.Origin, Allow: l.Allow, Deny: l.Deny, Provider: l.Provider,
		})
	}
	return out
}
