package feed

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// What the services tell the screen.
type (
	// Accepted reports that a message is in the inbox, or was refused.
	Accepted struct {
		ID  int64
		Err error
	}
	// Changed reports that a message without a fate waits for something else; Ahead is the
	// message before it in the conversation that waits, nil for none.
	Changed struct{ Turn, Ahead *registry.Turn }
	// Finished reports that a message has its fate.
	Finished struct {
		ID    int64
		Turn  *registry.Turn
		Reply string
		OK    bool // there is a reply
		Err   error
	}
	// Seen are message events of the conversation, of all its senders.
	Seen struct{ Events []*registry.Event }
	// Opened is the past of the conversation, and the thread that stores it; Head 0 means
	// there is none yet.
	Opened struct {
		Thread string
		Events []*registry.Event
		Head   int64
		Err    error
		// Aborted are the messages in the inbox by their events, of those whose turn was aborted.
		Aborted map[int64]int64
	}
)

// Message is a message that was typed.
type Message struct{ Key, Text string }

// Source asks the services for the screen about one conversation with an agent.
type Source struct {
	Env   *command.Env
	Agent string
	// Peer is who speaks. Session is the key of the conversation; empty: it is the one of the
	// peer.
	Peer    message.Peer
	Session string
	Send    func(tea.Msg)
}

// again is the pause before a service that is away is asked again.
const again = 300 * time.Millisecond

// Say pushes a message, however long the registry is away: its key makes the
// repeat harmless.
func (s *Source) Say(ctx context.Context, what Message) tea.Cmd {
	return func() tea.Msg {
		for {
			id, _, err := message.Say(ctx, s.Env, s.Agent, s.Peer, s.Session, what.Key, what.Text)
			if !command.Unavailable(err) || ctx.Err() != nil {
				return Accepted{id, err}
			}
			_ = pause.For(ctx, again)
		}
	}
}

// rest is how long the rest of a run's stream may take once the fate of its message is known.
const rest = time.Second

// Attend shows the run of a message and reports its fate after what the run did: a run can
// be over before its stream is asked for.
func (s *Source) Attend(ctx context.Context, id int64) tea.Cmd {
	return func() tea.Msg {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		shown := make(chan struct{})
		go func() {
			defer close(shown)
			s.follow(ctx, id)
		}()
		f := s.await(ctx, id)
		late := time.AfterFunc(rest, stop)
		defer late.Stop()
		<-shown
		return f
	}
}

// await waits for the fate of a message.
func (s *Source) await(ctx context.Context, id int64) Finished {
	for {
		t, err := message.Turn(ctx, s.Env, s.Agent, id, false, func(p message.Progress) { s.Send(Changed{p.Turn, p.Ahead}) })
		if command.Unavailable(err) && ctx.Err() == nil {
			continue // it has waited long
		}
		if err != nil {
			return Finished{ID: id, Err: err}
		}
		reply, ok, err := message.Reply(ctx, s.Env, t)
		if command.Unavailable(err) && ctx.Err() == nil {
			_ = pause.For(ctx, again)
			continue
		}
		return Finished{id, t, reply, ok, err}
	}
}

const (
	messages     = "type = '" + thread.TypeMessage + "' AND (subtype IS NULL OR subtype <> '" + thread.SubtypeAction + "')"
	pastMessages = 100
	pastAborted  = 20 // of the agent; each is read
)

// Past are the newest messages of the conversation, and the id to watch from.
// There is no conversation before the first message.
func (s *Source) Past(ctx context.Context) tea.Cmd {
	return func() tea.Msg {
		at, err := s.locate(ctx, Place{})
		if err != nil {
			return Opened{Err: err}
		}
		r, err := s.Env.Threads().PeekEvents(ctx, &registry.PeekEventsRequest{
			Thread: &registry.ThreadRef{AgentId: s.Agent, ThreadId: at.Thread},
			Filter: messages, Tail: true, Limit: pastMessages,
		})
		o := Opened{Thread: at.Thread, Events: r.GetEvents(), Head: r.GetHeadId(), Err: err}
		if err == nil {
			o.Aborted = s.aborted(ctx, at.Thread)
		}
		return o
	}
}

// aborted finds the newest aborted turns of a conversation; what cannot be read is not shown.
func (s *Source) aborted(ctx context.Context, conversation string) map[int64]int64 {
	found := map[int64]int64{}
	r, _ := s.Env.Turns().ListTurns(ctx, &registry.ListTurnsRequest{AgentId: s.Agent, Fate: registry.Fate_FATE_ABORTED, PageSize: pastAborted})
	for _, t := range r.GetTurns() {
		if t.GetThreadId() != conversation {
			continue
		}
		got, err := s.Env.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: s.Agent, InboxId: t.GetInboxId()})
		if err == nil {
			found[got.GetTurn().GetInboundEventId()] = t.GetInboxId()
		}
	}
	return found
}

// Watch reports every new message of the conversation, also of those that came
// from another window. It resumes after the last id when the registry was away.
func (s *Source) Watch(ctx context.Context, conversation string, after int64) {
	for ctx.Err() == nil {
		stream, err := s.Env.Threads().WatchEvents(ctx, &registry.WatchEventsRequest{
			Thread: &registry.ThreadRef{AgentId: s.Agent, ThreadId: conversation}, AfterId: after, Filter: messages,
		})
		for err == nil {
			var r *registry.WatchEventsResponse
			if r, err = stream.Recv(); err == nil && len(r.GetEvents()) > 0 {
				after = r.GetEvents()[len(r.GetEvents())-1].GetId()
				s.Send(Seen{r.GetEvents()})
			}
		}
		_ = pause.For(ctx, again)
	}
}
