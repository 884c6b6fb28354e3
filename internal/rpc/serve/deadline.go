package serve

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc/direct"
)

// maxShave is the most time kept back for the answer's way home.
const maxShave = 50 * time.Millisecond

// deadlineUnary ends the handler a little before the caller gives up, so that
// the caller learns the error instead of timing out, and refuses work whose time
// is already over.
func (c *chain) deadlineUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if _, near := direct.Caller(ctx); near { // its answer has no way to go
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	} else {
		shaved, cancel, err := shave(ctx)
		if err != nil {
			return nil, err
		}
		defer cancel()
		ctx = shaved
	}
	if c.o.Policy[info.FullMethod].EndOnDrain {
		var stop func()
		ctx, stop = c.untilDrain(ctx)
		defer stop()
		resp, err := next(ctx, req)
		if err != nil && errors.Is(context.Cause(ctx), errDraining) {
			err = errDraining
		}
		return resp, err
	}
	return next(ctx, req)
}

func (c *chain) deadlineStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, cancel, err := shave(ss.Context())
	if err != nil {
		return err
	}
	defer cancel()
	return next(srv, &stream{ServerStream: ss, ctx: ctx})
}

// shave moves the deadline forward by 5 % of what is left, at most maxShave.
func shave(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}, nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return nil, nil, context.DeadlineExceeded
	}
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-min(left/20, maxShave)))
	return ctx, cancel, nil
}
