package rpc

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// tokenSource keeps the bearer in memory and reads the file again when told.
type tokenSource struct {
	path string
	as   Identity

	mu     sync.Mutex
	bearer string
}

// get returns the bearer, "" when there is no token (yet): then the server or
// the missing socket says what is wrong.
func (s *tokenSource) get() (string, error) {
	if s.path == "" {
		return "", nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bearer != "" {
		return s.bearer, nil
	}
	return s.read()
}

func (s *tokenSource) read() (string, error) {
	token, err := ReadToken(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		s.bearer = ""
		return "", nil
	case err != nil:
		return "", err
	}
	s.bearer = Bearer(token, s.as)
	return s.bearer, nil
}

// renewed reads the file after refused was refused; ok is false when there is
// nothing new to show.
func (s *tokenSource) renewed(refused string) (bearer string, ok bool) {
	if s.path == "" {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bearer != refused && s.bearer != "" { // another call renewed it already
		return s.bearer, true
	}
	bearer, err := s.read()
	return bearer, err == nil && bearer != "" && bearer != refused
}

// maxRenewals is how often one call is repeated with a new token.
const maxRenewals = 3

// outgoing is what every call of a connection passes.
type outgoing struct {
	timeout time.Duration
	token   tokenSource
	safe    []string // full methods that may be repeated
}

// lost reports whether a call that may be repeated ended with its connection. gRPC repeats such a call itself, unless the
// head of the answer came first: then only the text distinguishes it from an error that a server answers.
func (o *outgoing) lost(method string, err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.Unavailable && strings.HasPrefix(s.Message(), "error reading from server: ") && slices.Contains(o.safe, method)
}

// sign adds the bearer and the request id of the call being handled, if any.
func sign(ctx context.Context, bearer string) context.Context {
	kv := make([]string, 0, 4)
	if bearer != "" {
		kv = append(kv, MetaAuth, "Bearer "+bearer)
	}
	if id := RequestID(ctx); id != "" {
		kv = append(kv, MetaRequestID, id)
	}
	if len(kv) == 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, kv...)
}

func (o *outgoing) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if _, ok := ctx.Deadline(); !ok && o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	bearer, err := o.token.get()
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	err = invoke(sign(ctx, bearer), method, req, reply, cc, opts...)
	if o.lost(method, err) {
		err = invoke(sign(ctx, bearer), method, req, reply, cc, opts...)
	}
	if status.Code(err) != codes.Unauthenticated {
		return err
	}
	// The access check refuses before a handler runs, so repeating is safe. Again
	// when the token was rotated meanwhile once more.
	for range maxRenewals {
		var ok bool
		if bearer, ok = o.token.renewed(bearer); !ok {
			return err
		}
		if err = invoke(sign(ctx, bearer), method, req, reply, cc, opts...); status.Code(err) != codes.Unauthenticated {
			return err
		}
	}
	return err
}

func (o *outgoing) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	bearer, err := o.token.get()
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	reopen := func(bearer string) (grpc.ClientStream, error) {
		return open(sign(ctx, bearer), desc, cc, method, opts...)
	}
	s, err := reopen(bearer)
	if err != nil || o.token.path == "" {
		return s, err
	}
	return &stream{ClientStream: s, token: &o.token, bearer: bearer, reopen: reopen, replay: !desc.ClientStreams}, nil
}

// stream repeats a refused server stream once: its one request is kept until the
// first answer. A stream of requests is not repeated, but the next call will
// show the new token.
type stream struct {
	grpc.ClientStream
	token  *tokenSource
	bearer string
	reopen func(bearer string) (grpc.ClientStream, error)

	replay  bool // no answer yet and still the first try
	settled bool // the first answer came: nothing to watch for
	request any
}

func (s *stream) SendMsg(m any) error {
	if s.replay {
		s.request = m
	}
	return s.ClientStream.SendMsg(m)
}

func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.settled {
		return err
	}
	s.settled = true
	if status.Code(err) != codes.Unauthenticated {
		s.request = nil
		return err
	}
	bearer, ok := s.token.renewed(s.bearer)
	if !ok || !s.replay || s.request == nil {
		return err
	}
	again, openErr := s.reopen(bearer)
	if openErr != nil {
		return openErr
	}
	s.ClientStream = again
	if err := again.SendMsg(s.request); err != nil {
		return err
	}
	s.request = nil
	if err := again.CloseSend(); err != nil {
		return err
	}
	return again.RecvMsg(m)
}
