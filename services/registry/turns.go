package registry

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// threadOf routes an event under a mode. Another program may have written what
// PushEvents would have refused, and what no answer of ours could carry: such an
// event has no route, and so is dead at once.
func threadOf(e thread.Event, mode string) (string, error) {
	if !utf8.ValidString(e.Source) || !utf8.ValidString(e.Content) {
		return "", errNotText
	}
	if len(e.Content) > thread.MaxEvent {
		return "", tooLarge(e.Content)
	}
	m, err := route.ParseMode(mode)
	if err != nil {
		return "", err
	}
	t, _, err := route.Of(e.Source, e.Content)
	if err != nil {
		return "", err
	}
	return route.Thread(m, t), nil
}

// OpenBatch reads events without a fate, each with its route.
func (s *Service) OpenBatch(ctx context.Context, req *registryv1.OpenBatchRequest) (*registryv1.OpenBatchResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.appendLog(a.ID, req.GetLogs())
	if !a.Started() || a.Damaged() {
		return &registryv1.OpenBatchResponse{}, nil
	}
	b, err := s.store.OpenBatch(ctx, a.ID, fence, store.OpenBatch{
		After: req.GetAfterId(), Limit: limitOf(req.GetLimit(), 32), Mode: set.Config.Routing.Default, Route: threadOf,
		Claimed: func(ctx context.Context, e thread.Event, key, mode string) (bool, error) {
			return s.claimed(ctx, a.ID, e, key, mode)
		},
	})
	if err != nil {
		return nil, s.edge(a.ID, thread.Inbox, err)
	}
	a.Pushed(b.Head)
	if b.Settled > 0 {
		s.settled(a, b.Acked)
	}
	out := &registryv1.OpenBatchResponse{HeadId: b.Head, ScannedId: b.Scanned, More: b.More, Concurrency: int32(set.Config.Run.Concurrency)}
	for _, p := range b.Events {
		out.Events = append(out.Events, &registryv1.PendingEvent{Event: toEvent(p.Event), Key: p.Key, ThreadId: p.Thread})
	}
	return out, nil
}

// claimed tells whether e was begun under a mode; only asked when the routing
// mode of an agent with waiting events has changed.
func (s *Service) claimed(ctx context.Context, agentID string, e thread.Event, key, mode string) (bool, error) {
	id, err := threadOf(e, mode)
	if err != nil {
		return false, nil // it will be dead under any mode
	}
	begun, err := s.store.Claimed(ctx, store.Ref{Agent: agentID, Thread: id}, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return begun, err
}

// turnCall is what the four calls of a turn have in common.
func (s *Service) turnCall(ctx context.Context, id string) (*directory.Agent, store.Fence, *agentdir.Agent, error) {
	a, err := s.dir.Get(id)
	if err != nil {
		return nil, store.Fence{}, nil, err
	}
	fence, err := underLease(ctx, lease.AgentResource(id))
	if err != nil {
		return nil, fence, nil, err
	}
	set, err := a.Settings(s.home)
	if err != nil {
		a.Fail(fault.From(err).What, false)
		return nil, fence, nil, err
	}
	return a, fence, set, nil
}

// BeginTurn claims an event (T1) and records it (T2).
func (s *Service) BeginTurn(ctx context.Context, req *registryv1.BeginTurnRequest) (*registryv1.BeginTurnResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	a.Life.RLock()
	defer a.Life.RUnlock()
	if !a.Started() {
		return nil, fault.New(codes.FailedPrecondition, fault.AgentStopped, "agent '"+a.ID+"' is stopped", "start it with 'agentctl start "+a.ID+"'")
	}
	s.appendLog(a.ID, req.GetLogs())
	ev, err := s.inboxEvent(ctx, a.ID, req.GetInboxId(), req.GetKey())
	if err != nil {
		return nil, err
	}
	tuple, rc, err := route.Of(ev.Source, ev.Content)
	if err != nil {
		return nil, err
	}
	r := store.Ref{Agent: a.ID, Thread: req.GetThreadId()}
	who := tupleText(tuple)
	if _, err := s.store.Ensure(ctx, r, who); err != nil {
		return nil, s.edge(a.ID, r.Thread, err)
	}
	path, err := s.dir.Path(r)
	if err != nil {
		return nil, s.edge(a.ID, r.Thread, err)
	}
	deliver, _ := delivery(set, tuple, r.Thread)
	fault.Point("T1.before")
	fault.Point("T2.before")
	b, err := s.store.Begin(ctx, r, fence, store.Begin{
		Event: ev, Key: req.GetKey(), Tuple: who, ReplyContext: string(rc), Alone: req.GetAlone(),
		Tail: set.Config.Context.RecentMessages + 1, Subscribe: deliver,
		Handler: "agent deliver --thread " + path + " --consumer " + thread.Outbound,
	})
	if err != nil {
		return nil, s.edge(a.ID, r.Thread, err)
	}
	fault.Point("T1.after")
	fault.Point("T2.after")
	out := &registryv1.BeginTurnResponse{Outcome: beginOutcomes[b.Outcome], Wait: durationpb.New(b.Wait)}
	switch b.Outcome {
	case store.BeginFinished, store.BeginExhausted:
		_, err := s.settle(ctx, a, fence, req.GetInboxId(), req.GetKey(), r.Thread, b.Finished, "the process died each time this message was worked on")
		return out, err
	case store.BeginGo:
		a.Claim(r.Thread, req.GetKey(), directory.Claim{Source: ev.Source, Tuple: tuple, ReplyContext: rc})
		out.Inbound, out.Steps, out.Tail = toEvent(b.Inbound), toSteps(b.Steps), toEvents(b.Tail)
		out.ErrorAttempts, out.CrashAttempts = int32(b.ErrorAttempts), int32(b.CrashAttempts)
		out.ReplyContext, out.Waited = string(rc), durationpb.New(b.Waited)
		out.Config, out.Files = turnConfig(set), s.contextFiles(set, tuple, r.Thread)
	}
	return out, nil
}

var beginOutcomes = map[store.BeginOutcome]registryv1.BeginTurnOutcome{
	store.BeginGo:        registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO,
	store.BeginFinished:  registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_FINISHED,
	store.BeginAlone:     registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_ALONE,
	store.BeginWait:      registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_WAIT,
	store.BeginExhausted: registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_EXHAUSTED,
}

// inboxEvent reads the event a turn is about, and refuses when another one
// stands under its id.
func (s *Service) inboxEvent(ctx context.Context, agentID string, id int64, want string) (thread.Event, error) {
	ev, key, err := s.store.InboxEvent(ctx, agentID, id)
	if err == nil && key != want {
		err = store.ErrKeyMismatch
	}
	return ev, s.edge(agentID, thread.Inbox, err)
}

func tupleText(t route.Tuple) string {
	b, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return string(b)
}

// delivery tells whether replies in a thread have a way out, and whether that
// way is a client that watches.
func delivery(set *agentdir.Agent, t route.Tuple, threadID string) (deliver, console bool) {
	switch {
	case t.Internal:
		return true, false
	case t.ChannelType == "console":
		return true, true
	}
	_, ok := set.Config.Via(threadID)
	return ok, false
}

func turnConfig(set *agentdir.Agent) *registryv1.TurnConfig {
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
		SandboxMode: c.Sandbox.Mode, SandboxNetwork: c.Sandbox.Network, NotifyPeer: c.OnError.NotifyPeer,
		Workdir: set.Dir.Workdir(), SessionsDir: set.Dir.Sessions(),
	}
}

// contextFiles reads the parts of the prompt that are files, in their order. The
// names come from the tuple and the thread alone, so that no other peer's memory
// can be among them.
func (s *Service) contextFiles(set *agentdir.Agent, t route.Tuple, threadID string) []*registryv1.ContextFile {
	var out []*registryv1.ContextFile
	for _, name := range []string{
		"IDENTITY.md", filepath.Join("memory", route.MemoryAgentFile),
		filepath.Join("memory", route.MemoryUserFile(t)), filepath.Join("memory", route.MemoryThreadFile(threadID)),
	} {
		data, _, err := set.Dir.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.log.Warn("file left out of the prompt", "agent_id", set.Dir.ID, "file", name, "error", err)
			continue
		}
		if len(data) > 0 {
			out = append(out, &registryv1.ContextFile{Name: name, Content: string(data)})
		}
	}
	return out
}

// RecordStep journals progress (T3, T4, T6).
func (s *Service) RecordStep(ctx context.Context, req *registryv1.RecordStepRequest) (*registryv1.RecordStepResponse, error) {
	a, fence, _, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.appendLog(a.ID, req.GetLogs())
	rec := store.Record{Key: req.GetKey()}
	rec.Steps, rec.Toolcalls = fromSteps(req.GetSteps())
	if ft := req.GetFailedTry(); ft != nil {
		rec.Failed = &store.FailedTry{Error: ft.GetClass() + ": " + ft.GetError(), Wait: ft.GetWait().AsDuration(), Counted: ft.GetCounted()}
	}
	label := stepLabel(rec.Steps)
	point(label, ".before")
	n, err := s.store.Record(ctx, store.Ref{Agent: a.ID, Thread: req.GetThreadId()}, fence, rec)
	if err != nil {
		return nil, s.edge(a.ID, req.GetThreadId(), err)
	}
	point(label, ".after")
	return &registryv1.RecordStepResponse{ErrorAttempts: int32(n)}, nil
}

// stepLabel is the failpoint a set of steps passes: T6 with a result, T4 with an
// intent.
func stepLabel(steps []store.Step) string {
	for _, st := range steps {
		if st.Kind == store.StepTool && st.State == store.StepIntent {
			return "T4"
		}
	}
	for _, st := range steps {
		if st.Kind == store.StepTool {
			return "T6"
		}
	}
	return ""
}

func point(label, at string) {
	if label != "" {
		fault.Point(label + at)
	}
}

// FinishTurn gives an event its fate (T7 or T9) and acknowledges it (T8).
func (s *Service) FinishTurn(ctx context.Context, req *registryv1.FinishTurnRequest) (*registryv1.FinishTurnResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.appendLog(a.ID, req.GetLogs())
	r := store.Ref{Agent: a.ID, Thread: req.GetThreadId()}
	c, err := s.claimOf(ctx, a, req)
	if err != nil {
		return nil, err
	}
	key, tuple, rc := req.GetKey(), c.Tuple, c.ReplyContext
	fin := store.Finish{Key: key, Fate: fates[req.GetFate()], Error: req.GetError(), BootID: s.cfg.BootID}
	fin.Steps, fin.Toolcalls = fromSteps(req.GetSteps())
	fin.Deliver, fin.Console = delivery(set, tuple, r.Thread)
	label := "T7"
	switch fin.Fate {
	case store.FateReplied:
		fin.Reply = replyContent(req.GetText(), rc)
	case store.FateDead:
		label = "T9"
		fin.Record = errorContent(req.GetError(), "message from "+c.Source)
		if req.GetText() != "" {
			fin.Apology = replyContent(req.GetText(), rc)
		}
	}
	point(label, ".before")
	done, err := s.store.Finish(ctx, r, fence, fin)
	if err != nil {
		return nil, s.edge(a.ID, r.Thread, err)
	}
	point(label, ".after")
	acked, err := s.settle(ctx, a, fence, req.GetInboxId(), key, r.Thread, done, req.GetError())
	if err != nil {
		return nil, err
	}
	return &registryv1.FinishTurnResponse{Fate: toFate(done.Fate), ReplyEventId: done.ReplyID, LastAckedId: acked}, nil
}

// claimOf answers what is known of a claim; a registry that was restarted since
// reads the event again.
func (s *Service) claimOf(ctx context.Context, a *directory.Agent, req *registryv1.FinishTurnRequest) (directory.Claim, error) {
	if c, ok := a.Claimed(req.GetThreadId(), req.GetKey()); ok {
		return c, nil
	}
	ev, err := s.inboxEvent(ctx, a.ID, req.GetInboxId(), req.GetKey())
	if err != nil {
		return directory.Claim{}, err
	}
	c := directory.Claim{Source: ev.Source}
	c.Tuple, c.ReplyContext, err = route.Of(ev.Source, ev.Content)
	return c, err
}

func replyContent(text string, rc json.RawMessage) string {
	b := thread.AppendString([]byte(`{"text":`), text)
	b = append(append(b, `,"reply_context":`...), rc...)
	return string(append(b, '}'))
}

func errorContent(what, where string) string {
	b := thread.AppendString([]byte(`{"error":`), what)
	b = thread.AppendString(append(b, `,"context":`...), where)
	return string(append(b, '}'))
}

// settle acknowledges (T8) and makes the delivery due.
func (s *Service) settle(ctx context.Context, a *directory.Agent, fence store.Fence, inboxID int64, key, threadID string, done store.Finished, problem string) (int64, error) {
	if done.OutboxHead > 0 {
		// Before T8: the reply is committed, and its delivery need not wait.
		a.ToDeliver(threadID, done.OutboxHead)
		s.deliver.Mark(a.ID, threadID)
	}
	fault.Point("T8.before")
	a.Wrote()
	acked, err := s.store.Settle(ctx, a.ID, fence, store.Settlement{
		InboxID: inboxID, Key: key, Thread: threadID, Fate: done.Fate, OutboxHead: done.OutboxHead, Error: problem,
	})
	if err != nil {
		return 0, s.edge(a.ID, thread.Inbox, err)
	}
	fault.Point("T8.after")
	a.Unclaim(threadID, key)
	if done.Fate == store.FateDead && !done.Already {
		a.CountDead(1)
	}
	s.settled(a, acked)
	return acked, nil
}

// settled tells those who wait for fates, and the metrics.
func (s *Service) settled(a *directory.Agent, acked int64) {
	a.Acked(acked)
	k := a.Known()
	s.metrics.SetInboxLag(a.ID, k.Head-k.Acked)
	s.metrics.SetOutboundLag(a.ID, int64(k.Outbound))
	s.fates.Wake(a.ID)
}
