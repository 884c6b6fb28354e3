package runs

import (
	"context"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Turns answers the accounts of turns.
type Turns interface {
	GetTurn(ctx context.Context, in *registrypb.GetTurnRequest, opts ...grpc.CallOption) (*registrypb.GetTurnResponse, error)
}

// GetTurn returns the account of a turn with all its steps.
func GetTurn(ctx context.Context, turns Turns, in *registrypb.GetTurnRequest) (*registrypb.GetTurnResponse, error) {
	r, err := turns.GetTurn(ctx, in)
	if err != nil {
		return nil, err
	}
	return r, ReadSteps(ctx, turns, r.GetTurn())
}

// ReadSteps adds the steps that an answer had no room for to a turn, of which it names agent, inbox id and key. After an
// error it may be called again and goes on.
func ReadSteps(ctx context.Context, turns Turns, t *registrypb.Turn) error {
	for t.GetMoreSteps() {
		in := &registrypb.GetTurnRequest{AgentId: t.GetAgentId(), InboxId: t.GetInboxId(), Key: t.GetKey()}
		if n := len(t.GetSteps()); n > 0 {
			in.AfterStep = t.GetSteps()[n-1].GetKey()
		}
		r, err := turns.GetTurn(ctx, in)
		if err != nil {
			return err
		}
		t.Steps, t.MoreSteps = append(t.Steps, r.GetTurn().GetSteps()...), r.GetTurn().GetMoreSteps()
	}
	return nil
}
