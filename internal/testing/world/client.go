package world

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Client is what a user of a home calls.
type Client struct {
	Agents     registryv1.AgentServiceClient
	Threads    registryv1.ThreadServiceClient
	Leases     registryv1.LeaseServiceClient
	Turns      registryv1.TurnServiceClient
	Deliveries registryv1.DeliveryServiceClient
	Approvals  registryv1.ApprovalServiceClient
	Questions  registryv1.QuestionServiceClient
	Media      registryv1.MediaServiceClient
	Routing    registryv1.RoutingServiceClient
	Channels   registryv1.ChannelServiceClient
	Sessions   registryv1.SessionServiceClient
	Homes      registryv1.HomeServiceClient
	Runner     runnerv1.RunnerServiceClient
}

// NewClient makes a client over connections to a registry and a runner.
func NewClient(registry, runner grpc.ClientConnInterface) Client {
	return Client{
		Agents: registryv1.NewAgentServiceClient(registry), Threads: registryv1.NewThreadServiceClient(registry),
		Leases: registryv1.NewLeaseServiceClient(registry), Turns: registryv1.NewTurnServiceClient(registry),
		Deliveries: registryv1.NewDeliveryServiceClient(registry), Approvals: registryv1.NewApprovalServiceClient(registry),
		Questions: registryv1.NewQuestionServiceClient(registry), Media: registryv1.NewMediaServiceClient(registry),
		Routing: registryv1.NewRoutingServiceClient(registry), Channels: registryv1.NewChannelServiceClient(registry),
		Sessions: registryv1.NewSessionServiceClient(registry), Homes: registryv1.NewHomeServiceClient(registry),
		Runner: runnerv1.NewRunnerServiceClient(runner),
	}
}

// Create makes and starts an agent whose config.yaml gets the lines of extra.
func (c Client) Create(t testing.TB, id, extra string) {
	t.Helper()
	ctx := t.Context()
	if _, err := c.Agents.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: id}); err != nil {
		t.Fatal(err)
	}
	if extra != "" {
		f, err := c.Agents.ReadAgentFile(ctx, &registryv1.ReadAgentFileRequest{AgentId: id, Name: "config.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Agents.WriteAgentFile(ctx, &registryv1.WriteAgentFileRequest{AgentId: id, Name: "config.yaml", Content: append(f.GetContent(), []byte("\n"+extra+"\n")...)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id}); err != nil {
		t.Fatal(err)
	}
}

// Peer is the source address of a person on the channel "main".
func Peer(name string) string { return fmt.Sprintf("external:telegram:main:dm:%s:%s", name, name) }

// Message is the content of a message that says text.
func Message(text string) string {
	b, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// Push sends a message from source into an agent's inbox and answers its id.
func (c Client) Push(ctx context.Context, agent, source, text, key string) (int64, error) {
	r, err := c.Threads.PushEvents(ctx, &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, IdempotencyKey: key,
		Events: []*registryv1.NewEvent{{Source: source, Type: "message", Content: Message(text)}},
	})
	if err != nil {
		return 0, err
	}
	return r.GetEventIds()[0], nil
}

// Say pushes and waits for the fate; the turn is answered with its account.
func (c Client) Say(t testing.TB, agent, source, text string) *registryv1.Turn {
	t.Helper()
	id, err := c.Push(t.Context(), agent, source, text, "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Await(t, agent, id)
}

// Await waits for the fate of an inbox event, at most a minute, also across a
// restart of the service: a connection to the process before it may still be
// taken for a live one.
func (c Client) Await(t testing.TB, agent string, id int64) *registryv1.Turn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := Again(ctx, func(ctx context.Context) (*registryv1.GetTurnResponse, error) {
		return c.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(50 * time.Second)})
	})
	if err != nil {
		t.Fatalf("wait for event %d of %s: %v", id, agent, err)
	}
	if r.GetTurn().GetFate() == registryv1.Fate_FATE_UNSPECIFIED {
		t.Fatalf("event %d of %s has no fate after 50 s: %v", id, agent, r.GetTurn())
	}
	return r.GetTurn()
}

// Delivered waits for the fate of an inbox event, and until its reply is sent or never will be; at
// most a minute.
func (c Client) Delivered(t testing.TB, agent string, id int64) *registryv1.Turn {
	t.Helper()
	turn := c.Await(t, agent, id)
	for end := time.Now().Add(time.Minute); underWay(turn); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the reply to event %d of %s is not sent after a minute: %v", id, agent, turn.GetDelivery())
		}
		turn = c.Ask(t, agent, id, 0)
	}
	return turn
}

func underWay(turn *registryv1.Turn) bool {
	switch turn.GetDelivery().GetState() {
	case registryv1.DeliveryState_DELIVERY_STATE_PENDING, registryv1.DeliveryState_DELIVERY_STATE_SENDING:
		return true
	}
	return false
}

// Events reads a whole thread through a filter.
func (c Client) Events(t testing.TB, agent, threadID, filter string) []*registryv1.Event {
	t.Helper()
	var out []*registryv1.Event
	for after := int64(0); ; {
		r, err := c.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: threadID}, AfterId: after, Limit: 1000, Filter: filter,
		})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r.GetEvents()...)
		if !r.GetMore() {
			return out
		}
		after = out[len(out)-1].GetId()
	}
}

// Reply is the text of a turn's reply event; empty when it has none.
func (c Client) Reply(t testing.TB, turn *registryv1.Turn) string {
	t.Helper()
	if turn.GetReplyEventId() == 0 {
		return ""
	}
	ev := c.Events(t, turn.GetAgentId(), turn.GetThreadId(), fmt.Sprintf("id = %d", turn.GetReplyEventId()))
	if len(ev) != 1 {
		t.Fatalf("reply event %d is not there", turn.GetReplyEventId())
	}
	return Text(ev[0])
}

// Text is what an event says.
func Text(e *registryv1.Event) string {
	var v struct{ Text string }
	if json.Unmarshal([]byte(e.GetContent()), &v) != nil {
		return ""
	}
	return v.Text
}

// IsApology reports whether an event is the apology for a message without an answer.
func IsApology(e *registryv1.Event) bool { return Text(e) == thread.Apology }

// Ask asks what became of an inbox event, and waits for its fate at most wait.
func (c Client) Ask(t testing.TB, agent string, id int64, wait time.Duration) *registryv1.Turn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait+10*time.Second)
	defer cancel()
	r, err := c.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(wait)})
	if err != nil {
		t.Fatalf("ask for event %d of %s: %v", id, agent, err)
	}
	return r.GetTurn()
}

// Set changes one key of an agent's configuration.
func (c Client) Set(t testing.TB, agent, key, value string) {
	t.Helper()
	if _, err := c.Agents.SetAgentConfig(t.Context(), &registryv1.SetAgentConfigRequest{AgentId: agent, Key: key, Value: value}); err != nil {
		t.Fatal(err)
	}
}
