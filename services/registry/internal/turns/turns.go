package turns

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/notifier"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/memory"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// turnCall does what the four calls of a turn have in common.
func (s *Service) turnCall(ctx context.Context, id string) (*state.Agent, store.Fence, *agentdir.Agent, error) {
	a, err := s.Agents.Get(id)
	if err != nil {
		return nil, store.Fence{}, nil, err
	}
	fence, err := wire.RequireFence(ctx, lease.AgentResource(id))
	if err != nil {
		return nil, fence, nil, err
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		a.SetError(err)
		return nil, fence, nil, err
	}
	return a, fence, set, nil
}

// config is what a turn of a conversation gets of the settings of an agent and of what people have decided on commands and on the tools
// of MCP servers.
func (s *Service) config(ctx context.Context, agent string, set *agentdir.Agent, at config.Conversation) (*registryv1.TurnConfig, error) {
	out := wire.TurnConfig(set, at)
	if err := s.Approvals.Bound(ctx, agent, out); err != nil {
		return nil, err
	}
	return out, s.Pins.Pinned(ctx, out.GetMcp())
}

// BeginTurn claims an event (T1) and records it (T2).
func (s *Service) BeginTurn(ctx context.Context, req *registryv1.BeginTurnRequest) (*registryv1.BeginTurnResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	if err := s.Agents.Space(); err != nil {
		return nil, err // the runner repeats it: what has begun may need the space that is left
	}
	a.Life.RLock()
	defer a.Life.RUnlock()
	if s.Agents.Stopped(a) {
		return nil, fault.New(codes.FailedPrecondition, fault.AgentStopped, "agent '"+a.ID+"' is stopped", "start it with 'agentctl start "+a.ID+"'")
	}
	s.Log.Append(a.ID, req.GetLogs())
	pending, known := a.TakeEvent(req.GetInboxId(), req.GetKey())
	if !known {
		if pending, err = s.pending(ctx, a.ID, req.GetInboxId(), req.GetKey()); err != nil {
			return nil, err
		}
	}
	ev := pending.Event
	tuple, rc, err := route.Of(ev.Source, ev.Content)
	if err != nil {
		return nil, err
	}
	r := store.Ref{Agent: a.ID, Thread: req.GetThreadId()}
	if why := admission.CheckSource(&set.Config, ev.Source); why != nil {
		// Another program wrote it. What was begun when it was allowed goes on.
		begun, err := s.Store.Claimed(ctx, r, req.GetKey())
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, s.Fault(a.ID, r.Thread, err)
		}
		if !begun {
			_, err := s.settleAgain(ctx, a, fence, req.GetInboxId(), req.GetKey(), "", store.Finished{Fate: store.FateDead}, fault.From(why).What)
			return &registryv1.BeginTurnResponse{Outcome: registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_FINISHED}, err
		}
	}
	deliver, console := delivery(set, tuple, r.Thread)
	var handler string
	if deliver {
		path, err := s.Agents.Path(r)
		if err != nil {
			return nil, s.Fault(a.ID, r.Thread, err)
		}
		handler = "agent deliver --thread " + notifier.Word(path) + " --consumer " + thread.Outbound
	}
	merged, err := s.mergedMessages(ctx, a.ID, ev.Source, tuple, req.GetMembers(), int(req.GetUnread())-1, set.Config.Queue.Drop)
	if err != nil {
		return nil, err
	}
	fault.Point("T1.before")
	fault.Point("T2.before")
	begin := store.Begin{
		Event: ev, Key: req.GetKey(), Tuple: tupleText(tuple), ReplyContext: string(rc), Alone: req.GetAlone(),
		Tail: set.Config.Context.RecentMessages + 1, Subscribe: deliver,
		Handler: handler,
		Layers:  []string{memory.ThreadLayer(r.Thread), memory.PeerLayer(tuple)},
		Members: merged, IfStarted: true, Files: memory.Names(tuple, r.Thread),
		Opening: opened(r.Thread, set.Config.Routing.Default, ev.ID), GivenBack: wire.ReadFailedTry(req.GetGivenBack()),
		Session: sessionOf(a.ID, r.Thread, set, pending.Origin, tuple),
	}
	key := ""
	if begin.Session != nil {
		key = begin.Session.Key
	}
	at := conversation(set.Accounts, key, r.Thread, tuple)
	turns, stated := history(set.Accounts, at, tuple)
	if stated { // one more, so that what leaves the prompt is seen to
		begin.Tail, begin.Turns = maxHistory+1, turns+1
	}
	if isCommand(pending.Origin) {
		if set, err = s.withOwners(ctx, set); err != nil {
			return nil, err
		}
	}
	if n := min(int(req.GetUnread()), len(merged)); n > 0 {
		begin.Event.Content = unread(ev.Content, set.Config.Queue.Drop, n)
	}
	command := claimCommand(&begin, set, pending.Origin)
	b, err := s.Turns.Begin(ctx, r, tupleText(tuple), fence, begin)
	if err != nil {
		return nil, s.Fault(a.ID, r.Thread, err)
	}
	fault.Point("T1.after")
	fault.Point("T2.after")
	if b.Session != nil && b.Session.EpochFrom > 0 && b.Session.EpochFrom+1 == b.Inbound.ID {
		fault.Point("E1.after")
	}
	out := &registryv1.BeginTurnResponse{Outcome: beginOutcomes[b.Outcome], Wait: durationpb.New(b.Wait)}
	switch b.Outcome {
	case store.BeginFinished, store.BeginExhausted:
		out.Error = wire.Text(b.Finished.Error)
		if b.Outcome == store.BeginExhausted {
			s.spend(ctx, a, set, ev.Source, r.Thread, req)
		}
		if err := s.cancelWaits(ctx, a.ID, req.GetKey(), b.Finished.Fate); err != nil {
			return nil, err
		}
		_, err := s.settleAgain(ctx, a, fence, req.GetInboxId(), req.GetKey(), r.Thread, b.Finished, b.Finished.Error)
		return out, err
	case store.BeginGo:
		a.Claim(r.Thread, req.GetKey(), state.Claim{Source: ev.Source, Tuple: tuple, ReplyContext: rc, Session: b.Session, Command: command != nil, Footer: footerOf(set, b.Session, tuple)})
		a.Use(r.Thread, req.GetKey(), b.Steps)
		out.Inbound, out.Tail = wire.Event(b.Inbound), wire.Events(b.Tail)
		out.ErrorAttempts, out.CrashAttempts = int32(b.ErrorAttempts), int32(b.CrashAttempts)
		out.ReplyContext, out.Waited, out.Error = string(rc), durationpb.New(b.Waited), wire.Text(b.Error)
		if !s.Memory.Settled(a, fence, b.Memory) {
			if err := s.Memory.Settle(ctx, a, fence, r, b.Memory); err != nil {
				return nil, err
			}
			b.Files = nil // they may be others now
		}
		if command != nil {
			out.Command, out.Answer = command.ChatCommand, answer(set, command, b.Session)
		}
		if b.Session != nil && b.Session.Key != key {
			at = conversation(set.Accounts, b.Session.Key, r.Thread, tuple)
		}
		if out.Config, err = s.config(ctx, a.ID, set, at); err != nil {
			return nil, err
		}
		setHistory(out.GetConfig(), turns, stated)
		out.Files = s.Memory.Read(ctx, a.ID, begin.Files, b.Files)
		if out.Files, err = s.Memory.InEpoch(ctx, a, fence, r, epochFrom(b), b.Memory[0], out.GetFiles()); err != nil {
			return nil, err
		}
		out.Files = withIdentity(set, out.GetFiles())
		out.Config.NotifyPeer = notifiesPeer(set.Config.OnError.NotifyPeer, tuple)
		if se := b.Session; se != nil {
			out.SessionKey, out.SessionId, out.EpochFromId = se.Key, se.Epoch, se.EpochFrom
			setForSession(out.GetConfig(), se)
		}
		if command == nil { // else they are known
			if set, err = s.withOwners(ctx, set); err != nil {
				return nil, err
			}
		}
		out.Config.Owners = owners(set)
		setForSpeaker(out.GetConfig(), set, ev, b.Session)
		setParts(out.GetConfig(), set, ev.Source, deliver && !console && source.IsPerson(ev.Source), console)
		out.Memory = []*registryv1.MemoryState{
			memory.State(registryv1.MemoryLayer_MEMORY_LAYER_THREAD, b.Memory[0]), memory.State(registryv1.MemoryLayer_MEMORY_LAYER_PEER, b.Memory[1]),
		}
		out.Agents = s.Memory.OtherAgents(ctx, set)
		said, err := s.context(ctx, r, set, pending.Origin, b)
		if err != nil {
			return nil, err
		}
		transcripts, err := s.transcripts(ctx, r, b)
		if err != nil {
			return nil, err
		}
		out.Tail = slices.Concat(out.GetTail(), wire.Events(said), wire.Events(transcripts))
		if out.Unanswered, err = s.unanswered(ctx, r, b.Tail); err != nil {
			return nil, err
		}
		if len(b.Steps) > 0 {
			out.Steps, out.MoreSteps = stepsIn(thread.MaxAnswer-proto.Size(out), wire.Steps(b.Steps))
			if err := s.Approvals.NotBegun(ctx, a.ID, req.GetKey(), out.GetSteps()); err != nil {
				return nil, err
			}
			s.Replies.SayStored(ctx, a, r.Thread)
		}
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

// pending reads the event that a turn is about, and what was decided with its push.
func (s *Service) pending(ctx context.Context, agentID string, id int64, want string) (store.Pending, error) {
	ev, err := s.inboxEvent(ctx, agentID, id, want)
	if err != nil {
		return store.Pending{}, err
	}
	origin, err := s.Store.Origin(ctx, agentID, id)
	return store.Pending{Event: ev, Key: want, Origin: origin}, s.Fault(agentID, thread.Inbox, err)
}

// inboxEvent reads the event a turn is about, and refuses when another one
// stands under its id.
func (s *Service) inboxEvent(ctx context.Context, agentID string, id int64, want string) (thread.Event, error) {
	ev, key, err := s.Store.InboxEvent(ctx, agentID, id)
	if err == nil && key != want {
		err = store.ErrKeyMismatch
	}
	return ev, s.Fault(agentID, thread.Inbox, err)
}

// FinishTurn gives an event its fate (T7 or T9) and acknowledges it (T8).
func (s *Service) FinishTurn(ctx context.Context, req *registryv1.FinishTurnRequest) (*registryv1.FinishTurnResponse, error) {
	a, fence, set, err := s.turnCall(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	s.Log.Append(a.ID, req.GetLogs())
	r := store.Ref{Agent: a.ID, Thread: req.GetThreadId()}
	c, err := s.claimOf(ctx, a, req)
	if err != nil {
		return nil, err
	}
	key, tuple, rc := req.GetKey(), c.Tuple, c.ReplyContext
	fin := store.Finish{Key: key, Fate: wire.ReadFate(req.GetFate()), Error: req.GetError(), BootID: s.Generation.Name(), InboxID: req.GetInboxId()}
	fin.Steps, fin.Records = wire.ReadSteps(req.GetSteps())
	fin.Failed = wire.ReadFailedTry(req.GetFailedTry())
	fin.Deliver, fin.Console = delivery(set, tuple, r.Thread)
	label := "T7"
	a.Use(r.Thread, key, fin.Steps) // for the footer and the quota
	switch fin.Fate {
	case store.FateSilent:
		fin.Decision = silent(req.GetInboxId())
	case store.FateReplied:
		fin.Reply, fin.Command = replyBehind(req.GetBefore(), req.GetText(), s.footer(ctx, a, set, r, c, fin), rc), c.Command
	case store.FateDead:
		label = "T9"
		fin.Record = thread.Failure{
			Error: req.GetError(), Context: "message from " + c.Source, Class: req.GetClass(), Refused: req.GetRefused(),
		}.Content()
		if fin.Apology, err = s.apology(ctx, r, set.Config.OnError.NotifyPeer, req.GetText(), rc); err != nil {
			return nil, err
		}
	}
	point(label, ".before")
	done, err := s.Store.Finish(ctx, r, fence, fin)
	if err != nil {
		return nil, s.Fault(a.ID, r.Thread, err)
	}
	point(label, ".after")
	if !done.Already {
		s.spend(ctx, a, set, c.Source, r.Thread, req)
	}
	if err := s.cancelWaits(ctx, a.ID, key, done.Fate); err != nil {
		return nil, err
	}
	acked, err := s.settle(ctx, a, fence, req.GetInboxId(), key, r.Thread, done, req.GetError(), c.Session)
	if err != nil {
		return nil, err
	}
	return &registryv1.FinishTurnResponse{Fate: wire.Fate(done.Fate), ReplyEventId: done.ReplyID, LastAckedId: acked}, nil
}

// cancelWaits ends what a turn without an answer still asks people. It comes before T8: a turn whose registry is killed before
// it is claimed again, and this is done then.
func (s *Service) cancelWaits(ctx context.Context, agent, key string, fate store.Fate) error {
	switch fate {
	case store.FateAborted:
		return s.CancelWaits(ctx, agent, key, "owner")
	case store.FateDead:
		return s.CancelWaits(ctx, agent, key, "")
	}
	return nil
}

// claimOf returns what is known of a claim; a registry that was restarted since
// reads the event again.
func (s *Service) claimOf(ctx context.Context, a *state.Agent, req *registryv1.FinishTurnRequest) (state.Claim, error) {
	if c, ok := a.Claimed(req.GetThreadId(), req.GetKey()); ok {
		return c, nil
	}
	p, err := s.pending(ctx, a.ID, req.GetInboxId(), req.GetKey())
	if err != nil {
		return state.Claim{}, err
	}
	ev := p.Event
	c := state.Claim{Restored: true, Source: ev.Source, Session: s.session(ctx, a.ID, req.GetThreadId()), Command: isCommand(p.Origin)}
	c.Tuple, c.ReplyContext, err = route.Of(ev.Source, ev.Content)
	return c, err
}

// replyBehind is the content of a reply that people read behind what precedes it. It says where the text of the agent
// begins, in bytes, so that no prompt has the rest. The footer is no part of the text: the deliverer adds it. Where an event
// cannot hold all of them it has the text alone.
func replyBehind(before, text, footer string, rc json.RawMessage) string {
	if before == "" && footer == "" {
		return replyContent(text, rc, nil)
	}
	fields := ""
	if before != "" {
		before += "\n\n"
		fields = `"answer_from":` + strconv.Itoa(len(before)) + ","
	}
	if footer != "" {
		fields += `"usage_footer":` + string(thread.AppendString(nil, footer)) + ","
	}
	if content := "{" + fields + replyContent(before+text, rc, nil)[1:]; len(content) <= thread.MaxEvent {
		return content
	}
	return replyContent(text, rc, nil)
}

func replyContent(text string, rc json.RawMessage, file *registryv1.Media) string {
	b := thread.AppendString([]byte(`{"text":`), text)
	if file != nil {
		list, _ := json.Marshal([]wire.Attachment{wire.AttachmentOf(file)}) // it is of texts and numbers
		b = append(append(b, `,"attachments":`...), list...)
	}
	b = append(append(b, `,"reply_context":`...), rc...)
	return string(append(b, '}'))
}

// settleAgain is settle for a turn that is not known to be claimed here.
func (s *Service) settleAgain(ctx context.Context, a *state.Agent, fence store.Fence, inboxID int64, key, threadID string, done store.Finished, problem string) (int64, error) {
	return s.settle(ctx, a, fence, inboxID, key, threadID, done, problem, s.session(ctx, a.ID, threadID))
}

// session reads that of a conversation, for the list of its agent; nil: it has none, or it cannot
// be read now, and the list gets it with the next message.
func (s *Service) session(ctx context.Context, agentID, threadID string) *store.Session {
	if threadID == "" {
		return nil
	}
	se, err := s.Store.Session(ctx, store.Ref{Agent: agentID, Thread: threadID})
	if err != nil {
		return nil
	}
	return &se
}

// settle acknowledges (T8) and makes the delivery due. session is the one of the conversation; nil:
// it has none, or it cannot be read now.
func (s *Service) settle(ctx context.Context, a *state.Agent, fence store.Fence, inboxID int64, key, threadID string, done store.Finished, problem string, session *store.Session) (int64, error) {
	if done.OutboxHead > 0 {
		s.Replies.ReplyStored(a, threadID, done.OutboxHead)
	}
	fault.Point("T8.before")
	a.NoteWrite()
	acked := done.Acked
	if !done.Settled {
		var err error
		if acked, err = s.Store.Settle(ctx, a.ID, fence, store.Settlement{
			InboxID: inboxID, Key: key, Thread: threadID, Fate: done.Fate, OutboxHead: done.OutboxHead, Error: problem, Merged: done.Merged, Session: session,
		}); err != nil {
			return 0, s.Fault(a.ID, thread.Inbox, err)
		}
	}
	fault.Point("T8.after")
	if done.OutboxHead > 0 {
		s.Replies.ReplyAcked(a, threadID, done.OutboxHead)
	}
	a.Unclaim(threadID, key)
	if done.Fate == store.FateDead && !done.Already {
		a.CountDead(1)
	}
	s.settled(a, acked)
	return acked, nil
}

// settled notifies the waiters for fates.
func (s *Service) settled(a *state.Agent, acked int64) {
	a.Acked(acked)
	s.Wakes.FateChanged(a.ID)
}
