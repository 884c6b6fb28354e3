package turns

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// RecordProcess stores how far a process in the background got.
func (s *Service) RecordProcess(ctx context.Context, req *registryv1.RecordProcessRequest) (*registryv1.RecordProcessResponse, error) {
	a, fence, err := s.processCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	in := req.GetProcess()
	p := store.Process{
		ID: in.GetId(), Thread: in.GetThreadId(), StepKey: in.GetStepKey(), State: processStates[in.GetState()],
		Exit: int64(in.GetExit()), Seen: in.GetSeen(),
	}
	p.Tail, _ = boundary.Text(in.GetTail(), store.MaxTail)
	if !p.State.Ended() {
		if p.SessionKey, p.Event, err = s.beginner(ctx, a, req); err != nil {
			return nil, err
		}
	}
	a.NoteWrite()
	out, err := s.Store.RecordProcess(ctx, a.ID, fence, p)
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	a.Acked(out.Acked)
	a.NoteProcesses(out.Running)
	return &registryv1.RecordProcessResponse{Process: process(out.Process)}, nil
}

// ListProcesses returns the processes of a conversation, or of an agent.
func (s *Service) ListProcesses(ctx context.Context, req *registryv1.ListProcessesRequest) (*registryv1.ListProcessesResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	list, err := s.Store.Processes(ctx, a.ID, req.GetThreadId(), req.GetId())
	if err == nil && req.GetId() != "" && len(list) == 0 {
		err = store.ErrNoProcess
	}
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	out := &registryv1.ListProcessesResponse{}
	for _, p := range list {
		out.Processes = append(out.Processes, process(p))
	}
	return out, nil
}

// processCall is what both calls need: settings that cannot be read keep no process from its end.
func (s *Service) processCall(ctx context.Context, id string) (*state.Agent, store.Fence, error) {
	a, err := s.Agents.Get(id)
	if err != nil {
		return nil, store.Fence{}, err
	}
	fence, err := wire.RequireFence(ctx, lease.AgentResource(id))
	return a, fence, err
}

// beginner returns the session of the conversation in which a process begins, and what the event
// at its end must have to be answered where the message was that began it. Of a message that is
// such an event itself, that is what it has.
func (s *Service) beginner(ctx context.Context, a *state.Agent, req *registryv1.RecordProcessRequest) (sessionKey, event string, err error) {
	c, err := s.claimOf(ctx, a, &registryv1.FinishTurnRequest{ThreadId: req.GetProcess().GetThreadId(), Key: req.GetKey(), InboxId: req.GetInboxId()})
	if err != nil {
		return "", "", err
	}
	if c.Session != nil {
		sessionKey = c.Session.Key
	}
	fields := struct {
		From  string          `json:"from"`
		Hops  int             `json:"hops,omitempty"`
		Reply json.RawMessage `json:"reply_context"`
	}{From: c.Source, Reply: c.ReplyContext}
	if from, _, err := source.ParseLenient(c.Source); err == nil && from.AboutProcess() {
		ev, err := s.inboxEvent(ctx, a.ID, req.GetInboxId(), req.GetKey())
		if err != nil {
			return "", "", err
		}
		fields.From = "" // should the event not say it, route.Of refuses the next one too
		_ = json.Unmarshal([]byte(ev.Content), &fields)
	} else if from.Kind == source.Internal {
		_ = json.Unmarshal(c.ReplyContext, &fields) // route.Of has written it
		fields.From = c.Source
	}
	b, err := json.Marshal(fields)
	return sessionKey, string(b), err
}

var processStates = map[registryv1.ProcessState]store.ProcessState{
	registryv1.ProcessState_PROCESS_STATE_STARTING: store.ProcessStarting,
	registryv1.ProcessState_PROCESS_STATE_RUNNING:  store.ProcessRunning,
	registryv1.ProcessState_PROCESS_STATE_EXITED:   store.ProcessExited,
	registryv1.ProcessState_PROCESS_STATE_KILLED:   store.ProcessKilled,
	registryv1.ProcessState_PROCESS_STATE_LOST:     store.ProcessLost,
}

func process(p store.Process) *registryv1.Process {
	out := &registryv1.Process{
		Id: p.ID, ThreadId: p.Thread, StepKey: p.StepKey, Exit: int32(p.Exit), Tail: wire.Text(p.Tail), Seen: p.Seen,
		StartedAt: timestamppb.New(p.StartedAt),
	}
	for to, from := range processStates {
		if from == p.State {
			out.State = to
		}
	}
	if !p.EndedAt.IsZero() {
		out.EndedAt = timestamppb.New(p.EndedAt)
	}
	return out
}
