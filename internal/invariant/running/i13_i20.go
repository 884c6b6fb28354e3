// Package running checks the invariants that need a running home: I13, the backlog
// drains; I19, a process leaves nothing behind; I20, stop stops and start starts.
//
// They call the services as a client does and wait by calls that are answered
// when the thing has happened. Unlike the other checks they change the home: a
// stop is only seen to work by stopping.
package running

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Client is what the checks of a running home call.
type Client struct {
	Agents registryv1.AgentServiceClient
	Turns  registryv1.TurnServiceClient
}

// Drain is I13: once faults have stopped, everything that is queued now gets its
// fate in time. It returns as soon as that is so, whatever comes in meanwhile; the
// error is of the calls.
func Drain(ctx context.Context, c Client, within time.Duration, agents ...string) ([]invariant.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var out []invariant.Finding
	for _, id := range agents {
		left, err := drain(ctx, c, id)
		// The time may be over for the service an instant before it is for us.
		if err != nil && ctx.Err() == nil && fault.From(err).Reason != fault.Deadline {
			return out, err
		}
		if left > 0 || err != nil {
			out = append(out, finding("I13", id, "see 'agentctl doctor'", "%d events have no fate after %s", left, within))
		}
	}
	return out, nil
}

func drain(ctx context.Context, c Client, id string) (left int64, err error) {
	head := int64(-1)
	for {
		st, err := c.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: id})
		if err != nil {
			return left, fmt.Errorf("read status: %w", err)
		}
		in := st.GetInbox()
		if head < 0 {
			head = in.GetHeadId()
		}
		if in.GetPending() == 0 || in.GetLastAckedId() >= head {
			return 0, nil
		}
		left = in.GetPending()
		// The registry answers when the first open event has its fate. An id that
		// a rolled back push used up is none: then any change of the head will do.
		_, err = c.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: id, InboxId: in.GetLastAckedId() + 1, Wait: durationpb.New(time.Minute)})
		if err != nil && fault.From(err).Reason != fault.TurnNotFound {
			return left, fmt.Errorf("wait for a fate: %w", err)
		}
	}
}

// StopStart is I20: after the answer to a stop nothing is claimed, and after a
// start everything queued meanwhile is handled. push makes one message arrive
// and answers its inbox id; still is how long the stopped agent is looked at.
func StopStart(ctx context.Context, c Client, id string, push func(context.Context) (int64, error), still, within time.Duration) ([]invariant.Finding, error) {
	if _, err := c.Agents.StopAgent(ctx, &registryv1.StopAgentRequest{AgentId: id}); err != nil {
		return nil, fmt.Errorf("stop agent: %w", err)
	}
	inboxID, err := push(ctx)
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	t, err := c.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: id, InboxId: inboxID, Wait: durationpb.New(still)})
	if err != nil {
		return nil, fmt.Errorf("look at the event: %w", err)
	}
	var out []invariant.Finding
	if s := t.GetTurn().GetState(); s != registryv1.TurnState_TURN_STATE_QUEUED {
		out = append(out, finding("I20", id, "report it", "event %d was begun after the agent had stopped", inboxID))
	}
	if _, err := c.Agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id}); err != nil {
		return out, fmt.Errorf("start agent: %w", err)
	}
	undone, err := Drain(ctx, c, within, id)
	for _, f := range undone {
		f.Invariant = "I20"
		out = append(out, f)
	}
	return out, err
}

func finding(id, agent, fix, format string, args ...any) invariant.Finding {
	return invariant.Finding{Invariant: id, Agent: agent, Thread: "inbox", What: fmt.Sprintf(format, args...), Fix: fix, Severity: invariant.Violation}
}
