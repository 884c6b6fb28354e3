package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/rpc"
)

// errDraining is what an EndOnDrain call ends with; its caller dials again.
var errDraining = &fault.Error{
	Code: codes.Unavailable, Reason: fault.ServiceUnavailable,
	What: "the service is going down", Fix: "try again in a moment", RetryAfter: 200 * time.Millisecond,
}

// edgeUnary turns what the handler and the checks answer into a status.
func (c *chain) edgeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, panicked(p)
		}
		if err != nil {
			resp, err = nil, c.fail(ctx, info.FullMethod, err)
		}
		if d := time.Since(start); d > slowCall && !c.o.Policy[info.FullMethod].Waits {
			c.o.Logger.WarnContext(ctx, "slow call", "method", info.FullMethod, "seconds", d.Seconds(), requestID(ctx))
		}
	}()
	return next(ctx, req)
}

// edgeStream does the same for a stream, which may last as long as it likes.
func (c *chain) edgeStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx := ss.Context()
	if c.o.Policy[info.FullMethod].EndOnDrain {
		var stop func()
		ctx, stop = c.untilDrain(ctx)
		defer stop()
		ss = &stream{ServerStream: ss, ctx: ctx}
	}
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		if err == nil {
			return
		}
		if errors.Is(context.Cause(ctx), errDraining) {
			err = errDraining
		}
		err = c.fail(ctx, info.FullMethod, err)
	}()
	return next(srv, ss)
}

// untilDrain ends ctx when the drain begins.
func (c *chain) untilDrain(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.draining, func() { cancel(errDraining) })
	return ctx, func() { stop(); cancel(nil) }
}

// fail is the one place where an error becomes a status. It logs the whole chain
// of those whose text the caller does not get, and tells the caller the request
// id under which it is found.
func (c *chain) fail(ctx context.Context, method string, err error) error {
	s := fault.Status(err)
	switch s.Code() {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		c.o.Logger.ErrorContext(ctx, "call failed", "method", method, "error", fault.Chain(err), requestID(ctx))
	}
	if id := rpc.RequestID(ctx); id != "" {
		// Fails only when the call is over; then nobody reads it.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(rpc.MetaRequestID, id))
	}
	return s.Err()
}

func requestID(ctx context.Context) slog.Attr {
	return slog.String(obs.KeyRequestID, rpc.RequestID(ctx))
}
