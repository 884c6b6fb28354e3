package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/window"
)

// BuildContext answers what the model would get for a message of a conversation
// (S0-76, S1-27). It is made by the very code that makes it for a turn; only the
// parts come over the calls that anybody may make.
func (s *Service) BuildContext(ctx context.Context, req *runnerpb.BuildContextRequest) (*runnerpb.BuildContextResponse, error) {
	scope, err := s.scope(ctx, req)
	if err != nil {
		return nil, err
	}
	p := s.driver.Sources.Build(scope)
	out := &runnerpb.BuildContextResponse{Tokens: p.Tokens, Budget: p.Budget}
	for _, part := range p.Parts {
		out.Parts = append(out.Parts, &runnerpb.ContextPart{
			Name: part.Name, Role: string(part.Role), Text: part.Text, Tokens: part.Tokens, Truncated: part.Cut,
		})
	}
	return out, nil
}

func (s *Service) scope(ctx context.Context, req *runnerpb.BuildContextRequest) (prompt.Scope, error) {
	var scope prompt.Scope
	value, err := s.settings(ctx, req.GetAgentId())
	if err != nil {
		return scope, err
	}
	scope.Tools = s.driver.Tools.Set(&registrypb.TurnConfig{MessageTool: value["reply.message_tool"] == "true"}).Offered()
	scope.ContextWindow, scope.MaxOutput = number(value["context_window"]), number(value["max_output_tokens"])
	scope.Walled, scope.Network = value["sandbox.mode"] != "off", value["sandbox.network"] == "true"
	recent := number(value["context.recent_messages"])
	mem, err := s.turns.GetMemory(ctx, &registrypb.GetMemoryRequest{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()})
	if err != nil {
		return scope, err
	}
	scope.Digested = memory.Layer(mem.GetMemory(), registrypb.MemoryLayer_MEMORY_LAYER_THREAD).GetDigestedId()
	for _, a := range mem.GetAgents() {
		scope.Agents = append(scope.Agents, prompt.Agent{ID: a.GetAgentId(), Usage: a.GetUsage()})
	}
	if m, err := s.models.Find(value["pai.provider"], value["pai.model"]); err == nil && m.Window > 0 && (scope.ContextWindow <= 0 || m.Window < scope.ContextWindow) {
		scope.ContextWindow = m.Window
	}
	scope.Keep = window.Keep(compaction(value), scope.ContextWindow-scope.MaxOutput-prompt.Reserve)

	if at := req.GetAtEvent(); at > 0 {
		if scope.Digested, err = s.digestedAt(ctx, req, at); err != nil {
			return scope, err
		}
	}
	peek := &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()},
		Filter: "type = 'message'", Limit: int32(min(recent+1, 1000)), Tail: true,
	}
	if at := req.GetAtEvent(); at > 0 {
		peek.Filter += fmt.Sprintf(" AND id <= %d", at)
	}
	page, err := s.threads.PeekEvents(ctx, peek)
	if err != nil {
		return scope, err
	}
	var speaker route.Tuple
	for _, e := range page.GetEvents() {
		ev := prompt.Event{ID: e.GetId(), CreatedAt: e.GetCreatedAt(), Source: e.GetSource(), Content: e.GetContent()}
		scope.Tail = append(scope.Tail, ev)
		if e.GetSource() == thread.SourceSelf {
			continue
		}
		scope.Inbound = ev
		if t, rc, err := route.Of(e.GetSource(), e.GetContent()); err == nil {
			speaker, scope.ReplyContext = t, string(rc)
		}
	}
	if scope.Files, err = s.files(ctx, req, speaker); err != nil {
		return scope, err
	}
	return scope, s.workdir(ctx, req.GetAgentId(), &scope)
}

// digestedAt is how far the conversation was digested at an event: the last decision
// before it says so, and none means not at all.
func (s *Service) digestedAt(ctx context.Context, req *runnerpb.BuildContextRequest, at int64) (int64, error) {
	page, err := s.threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()},
		Filter: fmt.Sprintf("type = 'record' AND subtype = 'decision' AND id <= %d", at), Limit: 100, Tail: true,
	})
	var upto int64
	for _, e := range page.GetEvents() {
		var d struct {
			Layer    string `json:"layer"`
			Digested int64  `json:"digested_id"`
		}
		if json.Unmarshal([]byte(e.GetContent()), &d) == nil && d.Layer == "thread" {
			upto = d.Digested
		}
	}
	return upto, err
}

// settings are an agent's, without the model that nobody chose: the runner's
// default answers then, as in a turn.
func (s *Service) settings(ctx context.Context, agentID string) (map[string]string, error) {
	conf, err := s.agents.GetAgentConfig(ctx, &registrypb.GetAgentConfigRequest{AgentId: agentID})
	if err != nil {
		return nil, err
	}
	value := map[string]string{}
	for _, v := range conf.GetValues() {
		if strings.HasPrefix(v.GetKey(), "pai.") && v.GetOrigin() == "default" {
			continue
		}
		value[v.GetKey()] = strings.TrimSpace(v.GetValue())
	}
	return value, nil
}

// files reads the parts that are files, by the names the registry gives a turn:
// no other peer's memory can be among them.
func (s *Service) files(ctx context.Context, req *runnerpb.BuildContextRequest, speaker route.Tuple) ([]prompt.File, error) {
	names := []string{"IDENTITY.md", "memory/" + route.MemoryAgentFile}
	if speaker != (route.Tuple{}) {
		names = append(names, "memory/"+route.MemoryUserFile(speaker))
	}
	names = append(names, "memory/"+route.MemoryThreadFile(req.GetThreadId()))
	var files []prompt.File
	for _, name := range names {
		r, err := s.agents.ReadAgentFile(ctx, &registrypb.ReadAgentFileRequest{AgentId: req.GetAgentId(), Name: name})
		if err != nil {
			return nil, err
		}
		files = append(files, prompt.File{Name: name, Content: string(r.GetContent())})
	}
	return files, nil
}

// workdir finds the working directory that the tool hints name.
func (s *Service) workdir(ctx context.Context, agentID string, scope *prompt.Scope) error {
	a, err := s.agents.GetAgent(ctx, &registrypb.GetAgentRequest{AgentId: agentID})
	if err != nil {
		return err
	}
	if dir := a.GetAgent().GetDir(); dir != "" {
		scope.Workdir = dir + "/workdir"
	}
	return nil
}

// compaction is the part of the settings that decides about digests.
func compaction(value map[string]string) *registrypb.CompactionConfig {
	return &registrypb.CompactionConfig{
		Strategy: value["compaction.strategy"], AtPercent: int32(number(value["compaction.at_percent"])),
		AfterTurns: int32(number(value["compaction.after_turns"])), KeepTokens: number(value["compaction.keep_tokens"]),
		PeerEvery: int32(number(value["compaction.peer_every"])), AgentEvery: int32(number(value["compaction.agent_every"])),
		Share: value["memory.share"] == "true", RecentMessages: int32(number(value["context.recent_messages"])),
	}
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
