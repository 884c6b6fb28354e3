package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/turn"
	"github.com/theclaw/agents/services/runner/internal/window"
)

// BuildContext returns what the model would get for a message of a conversation
// (S0-76, S1-27). It is made by the very code that makes it for a turn; only the
// parts come over the calls that anybody may make.
func (s *Service) BuildContext(ctx context.Context, req *runnerpb.BuildContextRequest) (*runnerpb.BuildContextResponse, error) {
	scope, err := s.scope(ctx, req)
	if err != nil {
		return nil, err
	}
	p := s.driver.Sources.Build(scope)
	out := &runnerpb.BuildContextResponse{Tokens: p.Tokens, Budget: p.Budget}
	for _, part := range p.Parts() {
		out.Parts = append(out.Parts, &runnerpb.ContextPart{
			Name: part.Name, Role: string(part.Role), Text: part.Text, Tokens: part.Tokens, Truncated: part.Cut,
		})
	}
	return out, nil
}

// scope makes a claim of what the calls answer, and its scope as a turn does.
func (s *Service) scope(ctx context.Context, req *runnerpb.BuildContextRequest) (prompt.Scope, error) {
	value, err := s.agentSettings(ctx, req.GetAgentId())
	if err != nil {
		return prompt.Scope{}, err
	}
	mem, err := s.turns.GetMemory(ctx, &registrypb.GetMemoryRequest{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()})
	if err != nil {
		return prompt.Scope{}, err
	}
	conf, _, err := s.turnConfig(ctx, &registrypb.GetTurnConfigRequest{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()})
	if err != nil {
		return prompt.Scope{}, err
	}
	claim := &registrypb.BeginTurnResponse{Config: conf, Memory: mem.GetMemory(), Agents: mem.GetAgents()}
	m, err := s.models.Find(conf.GetProvider(), conf.GetModel())
	if err != nil {
		m = modelcall.Model{} // its window is not known
	}
	reach := memory.Layer(claim.GetMemory(), registrypb.MemoryLayer_MEMORY_LAYER_THREAD).GetDigestedId()
	from, same, err := s.epoch(ctx, req, reach)
	if err != nil {
		return prompt.Scope{}, err
	}
	claim.EpochFromId = from
	var digested int64
	if at := req.GetAtEvent(); at > 0 {
		if digested, err = s.digestedAt(ctx, req, at); err != nil {
			return prompt.Scope{}, err
		}
	}
	peek := &registrypb.PeekEventsRequest{
		Thread:  &registrypb.ThreadRef{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()},
		AfterId: from, Filter: thread.ShownFilter, Tail: true,
	}
	if claim.Tail, err = s.tail(ctx, peek, req.GetAtEvent(), int(claim.GetConfig().GetCompaction().GetRecentMessages())+1); err != nil {
		return prompt.Scope{}, err
	}
	var speaker route.Tuple
	for _, e := range claim.GetTail() {
		if e.GetSource() == thread.SourceSelf {
			continue
		}
		claim.Inbound = e
		if t, rc, err := route.Of(e.GetSource(), e.GetContent()); err == nil {
			speaker, claim.ReplyContext = t, string(rc)
		}
	}
	said, err := s.said(ctx, req, from, claim)
	if err != nil {
		return prompt.Scope{}, err
	}
	transcripts, err := memory.Transcripts(ctx, s.threads, peek.GetThread(), claim.GetTail())
	if err != nil {
		return prompt.Scope{}, err
	}
	claim.Tail = append(append(claim.GetTail(), said...), transcripts...)
	if claim.Files, err = s.contextFiles(ctx, req, speaker); err != nil {
		return prompt.Scope{}, err
	}
	claim.Files = config.AddIdentity(claim.GetFiles(), value["identity.name"], value["identity.theme"], value["identity.emoji"])
	if !same {
		claim.Files = slices.DeleteFunc(claim.GetFiles(), func(f *registrypb.ContextFile) bool {
			return f.GetName() == "memory/"+route.MemoryThreadFile(req.GetThreadId())
		})
	}
	memory.LimitToEpoch(claim)
	tools, err := s.driver.Tools.For(ctx, req.GetAgentId(), claim.GetConfig())
	if err != nil {
		return prompt.Scope{}, err
	}
	scope := window.Scope(claim, m, tools.Offered())
	if req.GetAtEvent() > 0 {
		scope.Digested = digested
	}
	return scope, nil
}

// maxPeek is the most events of one call.
const maxPeek = 1000

// tail reads the newest messages up to an event, so many at most; 0 is no event.
func (s *Service) tail(ctx context.Context, peek *registrypb.PeekEventsRequest, upto int64, limit int) (out []*registrypb.Event, err error) {
	filter := peek.GetFilter()
	for len(out) < limit {
		if peek.Limit = int32(min(limit-len(out), maxPeek)); upto > 0 {
			peek.Filter = filter + fmt.Sprintf(" AND id <= %d", upto)
		}
		page, err := s.threads.PeekEvents(ctx, peek)
		if err != nil {
			return nil, err
		}
		events := page.GetEvents()
		out = slices.Concat(events, out)
		if len(events) == 0 || !page.GetMore() {
			break
		}
		upto = events[0].GetId() - 1
	}
	return out, nil
}

// maxSaid is how many messages of others are shown at most: what an agent without group_chat.history_limit has.
const maxSaid = 50

// said is what people wrote since the last reply before the message without starting a turn.
func (s *Service) said(ctx context.Context, req *runnerpb.BuildContextRequest, after int64, claim *registrypb.BeginTurnResponse) ([]*registrypb.Event, error) {
	inbound := claim.GetInbound().GetId()
	if inbound == 0 {
		return nil, nil
	}
	for _, e := range claim.GetTail() {
		if e.GetSource() == thread.SourceSelf && e.GetId() < inbound {
			after = max(after, e.GetId())
		}
	}
	page, err := s.threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread:  &registrypb.ThreadRef{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()},
		AfterId: after, Filter: fmt.Sprintf("%s AND id < %d", thread.ContextFilter, inbound), Limit: maxSaid, Tail: true,
	})
	return page.GetEvents(), err
}

// epoch finds where the epoch of the message begins, and reports whether the digest of the
// conversation, whose newest epoch it is about, is of this one.
func (s *Service) epoch(ctx context.Context, req *runnerpb.BuildContextRequest, digested int64) (from int64, same bool, err error) {
	from, err = memory.EpochFrom(ctx, s.threads, req.GetAgentId(), req.GetThreadId(), req.GetAtEvent())
	if err != nil {
		return 0, false, err
	}
	same = from == 0 || digested > from
	if at := req.GetAtEvent(); at > 0 && digested > at {
		ofDigest, err := memory.EpochFrom(ctx, s.threads, req.GetAgentId(), req.GetThreadId(), digested)
		if err != nil {
			return 0, false, err
		}
		same = ofDigest == from
	}
	return from, same, nil
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

// agentSettings are those of an agent.
func (s *Service) agentSettings(ctx context.Context, agentID string) (map[string]string, error) {
	conf, err := s.agents.GetAgentConfig(ctx, &registrypb.GetAgentConfigRequest{AgentId: agentID})
	if err != nil {
		return nil, err
	}
	value := map[string]string{}
	for _, v := range conf.GetValues() {
		value[v.GetKey()] = strings.TrimSpace(v.GetValue())
	}
	return value, nil
}

// contextFiles reads the parts that are files, by the names the registry gives a turn:
// no other peer's memory can be among them.
func (s *Service) contextFiles(ctx context.Context, req *runnerpb.BuildContextRequest, speaker route.Tuple) ([]*registrypb.ContextFile, error) {
	names := []string{"IDENTITY.md", "memory/" + route.MemoryAgentFile}
	if speaker != (route.Tuple{}) && !sessionkey.OfGroup(req.GetThreadId()) {
		names = append(names, "memory/"+route.MemoryUserFile(speaker))
	}
	names = append(names, "memory/"+route.MemoryThreadFile(req.GetThreadId()))
	var files []*registrypb.ContextFile
	for _, name := range names {
		r, err := s.agents.ReadAgentFile(ctx, &registrypb.ReadAgentFileRequest{AgentId: req.GetAgentId(), Name: name})
		if err != nil {
			return nil, err
		}
		files = append(files, &registrypb.ContextFile{Name: name, Content: string(r.GetContent())})
	}
	return files, nil
}

// turnConfig returns the settings as the next turn of a conversation has them, with the layers of its
// model and the directory of this machine, and its session key.
func (s *Service) turnConfig(ctx context.Context, req *registrypb.GetTurnConfigRequest) (c *registrypb.TurnConfig, key string, err error) {
	r, err := s.turns.GetTurnConfig(ctx, req)
	if err != nil {
		return nil, "", err
	}
	c = r.GetConfig()
	turn.ForModel(s.models, c)
	c.Workdir = turn.Workdir(req.GetAgentId(), s.cfg.Root, c)
	return c, r.GetSessionKey(), nil
}
