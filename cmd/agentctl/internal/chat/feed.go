package chat

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/command"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// What the services tell the screen.
type (
	// accepted: a message is in the inbox, or could not be pushed.
	accepted struct {
		id  int64
		err error
	}
	// finished: a message has its fate.
	finished struct {
		id    int64
		turn  *registry.Turn
		reply string
		ok    bool
		err   error
	}
	// piece: something happened in the run of a message.
	piece struct {
		id         int64
		text, tool string
	}
	// seen: message events of the conversation, from whoever.
	seen struct{ events []*registry.Event }
)

// said is a message that was typed.
type said struct{ key, text string }

// source asks the services for the screen. Its context ends with the program.
type source struct {
	env   *command.Env
	agent string
	send  func(tea.Msg)
}

func (s *source) say(ctx context.Context, what said) tea.Cmd {
	return func() tea.Msg {
		id, _, err := message.Say(ctx, s.env, s.agent, what.key, what.text)
		return accepted{id, err}
	}
}

func (s *source) await(ctx context.Context, id int64) tea.Cmd {
	return func() tea.Msg {
		t, err := message.Turn(ctx, s.env, s.agent, id)
		if err != nil {
			return finished{id: id, err: err}
		}
		reply, ok, err := message.Reply(ctx, s.env, t)
		return finished{id, t, reply, ok, err}
	}
}

// follow shows a reply while it is written. It is an extra: when the runner
// cannot be asked the whole reply comes at the end, and nothing is said.
func (s *source) follow(ctx context.Context, id int64) {
	r, err := s.env.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: s.agent, InboxId: id})
	if err != nil {
		return
	}
	stream, err := s.env.RunnerService().StreamRun(ctx, &runner.StreamRunRequest{AgentId: s.agent, RunId: r.GetTurn().GetKey()})
	if err != nil {
		return
	}
	for {
		item, err := stream.Recv()
		if err != nil {
			return
		}
		switch item.GetStream() {
		case runner.RunStream_RUN_STREAM_ASSISTANT:
			s.send(piece{id: id, text: item.GetText()})
		case runner.RunStream_RUN_STREAM_TOOL:
			if item.GetPhase() == "start" {
				s.send(piece{id: id, tool: item.GetTool()})
			}
		default:
		}
	}
}

// past are the newest messages of the conversation, and the id to watch from.
// There is no conversation before the first message.
func (s *source) past(ctx context.Context) ([]*registry.Event, int64) {
	r, err := s.env.Threads().PeekEvents(ctx, &registry.PeekEventsRequest{
		Thread: &registry.ThreadRef{AgentId: s.agent, ThreadId: message.Conversation},
		Filter: messages, Tail: true, Limit: pastMessages,
	})
	if err != nil {
		return nil, 0
	}
	return r.GetEvents(), r.GetHeadId()
}

const (
	messages     = "type = '" + thread.TypeMessage + "'"
	pastMessages = 10
)

// watch tells of every new message of the conversation, also of those that came
// from another window. It resumes after the last id when the registry was away.
func (s *source) watch(ctx context.Context, conversation string, after int64) {
	for {
		stream, err := s.env.Threads().WatchEvents(ctx, &registry.WatchEventsRequest{
			Thread: &registry.ThreadRef{AgentId: s.agent, ThreadId: conversation}, AfterId: after, Filter: messages,
		})
		for err == nil {
			var r *registry.WatchEventsResponse
			if r, err = stream.Recv(); err == nil && len(r.GetEvents()) > 0 {
				after = r.GetEvents()[len(r.GetEvents())-1].GetId()
				s.send(seen{r.GetEvents()})
			}
		}
		t := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}
