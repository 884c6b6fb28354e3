package hook

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Runners run the programs of hooks; [runs.Client] finds one that does.
type Runners interface {
	RunHook(ctx context.Context, in *runnerpb.RunHookRequest, opts ...grpc.CallOption) (*runnerpb.RunHookResponse, error)
}

// At returns the function of a [Caller] that starts no programs itself.
func At(runners Runners) func(ctx context.Context, h Hook, e *Event, input []byte) (Answer, error) {
	return func(ctx context.Context, h Hook, e *Event, input []byte) (Answer, error) {
		if runners == nil {
			return Answer{}, ErrNoRunner
		}
		r, err := runners.RunHook(ctx, &runnerpb.RunHookRequest{AgentId: e.Agent, Hook: h.Name, Event: e.Name, Input: string(input)})
		if f := fault.From(err); err != nil && f.Code == codes.Unavailable {
			return Answer{}, fmt.Errorf("%w: %s", ErrNoRunner, f.What)
		} else if err != nil {
			return Answer{}, err
		}
		return Read(e.Name, r)
	}
}

// Read is the answer of a program that a runner ran; the error is its failure.
func Read(event string, r *runnerpb.RunHookResponse) (Answer, error) {
	switch {
	case r.GetFailure() != "":
		return Answer{}, errors.New(r.GetFailure())
	case r.GetRefused():
		return Refusal(r.GetReason()), nil
	}
	return Parse(event, []byte(r.GetOutput()))
}
