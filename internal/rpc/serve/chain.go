package serve

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/theclaw/agents/internal/rpc"
)

// chain holds what the interceptors share. Each interceptor has its own file.
type chain struct {
	o        Options
	draining context.Context // done when the drain begins
	local    bool            // a Unix socket: the peer's user id is known
	rate     *rateLimit      // nil: none
}

// stream gives a stream another context and a check of each received message.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	check func(m any) error // nil: none
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if s.check == nil {
		return nil
	}
	return s.check(m)
}

// recoverUnary is the last net: the edge catches a handler's panic, this one
// those of the interceptors outside of it.
func (c *chain) recoverUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, c.fail(ctx, "", panicked(p))
		}
	}()
	return next(ctx, req)
}

func (c *chain) recoverStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = c.fail(ss.Context(), "", panicked(p))
		}
	}()
	return next(srv, ss)
}

// panicked keeps the value and the stack for the log.
func panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// callUnary makes the record of the call: its request id (the caller's, when it
// is a harmless word, else a new one) and the drain signal.
func (c *chain) callUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	return next(c.call(ctx), req)
}

func (c *chain) callStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, &stream{ServerStream: ss, ctx: c.call(ss.Context())})
}

func (c *chain) call(ctx context.Context) context.Context {
	id := ""
	if v := metadata.ValueFromIncomingContext(ctx, rpc.MetaRequestID); len(v) == 1 && harmless(v[0]) {
		id = v[0]
	} else {
		id = strconv.FormatUint(rand.Uint64(), 36) // a name to look for, not a secret
	}
	return rpc.WithCall(ctx, &rpc.Call{RequestID: id, Draining: c.draining.Done()})
}

// harmless keeps a caller from writing into our log.
func harmless(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, b := range []byte(id) {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.' || b == ':') {
			return false
		}
	}
	return true
}
