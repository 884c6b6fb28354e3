package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	events "github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/hook"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// RunHook runs the program of a hook, also for callers that start no programs of agents. Its command comes from the
// settings, never from a caller.
func (s *Service) RunHook(ctx context.Context, req *runnerpb.RunHookRequest) (*runnerpb.RunHookResponse, error) {
	agentID, name, event := req.GetAgentId(), req.GetHook(), req.GetEvent()
	of, err := s.homes.ListHooks(ctx, &registrypb.ListHooksRequest{AgentId: agentID})
	if err != nil {
		return nil, err
	}
	list := events.FromProto(of.GetHooks())
	n := slices.IndexFunc(list, func(h events.Hook) bool { return h.Name == name })
	if n < 0 {
		return nil, fault.New(codes.InvalidArgument, fault.HookInvalid, fmt.Sprintf("there is no hook %.64q", name), "'agentctl hooks list' shows the hooks")
	}
	if !list[n].IsFor(event) {
		return nil, fault.New(codes.InvalidArgument, fault.HookInvalid,
			fmt.Sprintf("the hook %s is not called at %.64q", name, event), "it is called at "+strings.Join(list[n].Events, ", "))
	}
	at := hook.Place{Dir: of.GetDir(), Mode: of.GetSandboxMode()}
	if s.cfg.Root != "" && agentID != "" {
		at.Dir = filepath.Join(s.cfg.Root, agentID) // the registry's path is of its machine
	}
	return s.hooks.Run(ctx, at, list[n], req.GetInput())
}

// callHook runs a hook of a turn.
func (s *Service) callHook(ctx context.Context, h events.Hook, e *events.Event, input []byte) (events.Answer, error) {
	r, err := s.RunHook(ctx, &runnerpb.RunHookRequest{AgentId: e.Agent, Hook: h.Name, Event: e.Name, Input: string(input)})
	if err != nil {
		return events.Answer{}, err
	}
	return events.Read(e.Name, r)
}

// observe calls the hooks that observe the command that a turn is, and the session that begins with it. A turn that is
// claimed again calls them again, with the same ids.
func (s *Service) observe(ctx context.Context, w turn.Work, b *registrypb.BeginTurnResponse) {
	of := func(name string, p events.Payload) *events.Event {
		if a, err := source.Parse(w.Source); err == nil {
			p.Account, p.Peer = a.ChannelID, a.PeerID
		}
		return &events.Event{
			Name: name, Key: w.Key, Agent: w.AgentID, SessionKey: b.GetSessionKey(), RunID: w.Key, Source: w.Source,
			At: thread.ParseStamp(b.GetInbound().GetCreatedAt()), Payload: p,
		}
	}
	hooks := events.FromProto(b.GetConfig().GetHooks())
	if c := w.Command; c != nil {
		_, _ = s.calls.Call(ctx, hooks, of(events.CommandEvent(c.GetName()), events.Payload{Command: c.GetName(), Args: c.GetArgs()})) // failures are logged
	}
	if len(events.For(hooks, w.AgentID, events.SessionStart, events.SessionEnd)) == 0 {
		return
	}
	began, err := s.sessionBegan(ctx, w, b)
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "hooks of a session are not called", "agent_id", w.AgentID, "thread_id", w.ThreadID, "error", err)
		return
	}
	if began.Previous != "" {
		_, _ = s.calls.Call(ctx, hooks, of(events.SessionEnd, events.Payload{SessionID: began.Previous, Reason: began.Reason}))
	}
	if began.ID != "" {
		_, _ = s.calls.Call(ctx, hooks, of(events.SessionStart, events.Payload{SessionID: began.ID, Previous: began.Previous, Reason: began.Reason}))
	}
}

// beganSession is one that begins with a turn; the zero value: none does.
type beganSession struct {
	ID       string `json:"session_id"`
	Previous string `json:"previous"`
	Reason   string `json:"reason"`
}

// sessionBegan reads the session that begins with the event of a turn: the record before the event says why. The
// first one of a conversation has no record.
func (s *Service) sessionBegan(ctx context.Context, w turn.Work, b *registrypb.BeginTurnResponse) (out beganSession, err error) {
	from, first := b.GetEpochFromId(), b.GetInbound().GetId()
	switch {
	case b.GetSessionId() != "" && from == 0 && first == 1:
		return beganSession{ID: b.GetSessionId(), Reason: "new"}, nil
	case from == 0 || from+1 != first:
		return out, nil
	}
	page, err := s.threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: w.AgentID, ThreadId: w.ThreadID}, AfterId: from - 1, Limit: 1,
	})
	if err != nil || len(page.GetEvents()) == 0 {
		return out, err
	}
	return out, json.Unmarshal([]byte(page.GetEvents()[0].GetContent()), &out)
}
