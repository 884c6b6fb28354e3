package serve

import (
	"context"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
)

var (
	errNoRule = fault.New(codes.PermissionDenied, fault.PermissionDenied, "nobody may call this method", "")
	errUser   = fault.New(codes.PermissionDenied, fault.PermissionDenied,
		"the service belongs to another user", "run the command as the user that started the service")
	errKind = fault.New(codes.PermissionDenied, fault.PermissionDenied,
		"this caller may not call this method", "use the owner's command line")
	errNoToken = fault.New(codes.Unauthenticated, fault.Unauthenticated,
		"the call shows no token", "check that the token file beside the socket can be read")
	errBadToken = fault.New(codes.Unauthenticated, fault.Unauthenticated,
		"the token is not valid", "read the token file again: it changes when the service starts")
)

// accessUnary lets a call pass when its rule does.
func (c *chain) accessUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := c.access(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (c *chain) accessStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := c.access(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, ss)
}

// access judges in this order: rule, user id, token, kind. It writes who called
// into the call's record, also for public methods when a good token is shown.
func (c *chain) access(ctx context.Context, method string) error {
	rule, ok := c.o.Policy[method]
	if !ok {
		return errNoRule
	}
	if c.local && !ours(ctx) {
		return errUser
	}
	id, err := c.identify(ctx)
	if rule.Public {
		if err == nil {
			rpc.CallFrom(ctx).Identity = id
		}
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.Contains(rule.Kinds, id.Kind) {
		return errKind
	}
	rpc.CallFrom(ctx).Identity = id
	return nil
}

// ours tells whether the kernel says that the caller has our user id.
func ours(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	who, ok := p.AuthInfo.(rpc.Peer)
	return ok && who.UID == uint32(os.Geteuid())
}

func (c *chain) identify(ctx context.Context) (rpc.Identity, error) {
	if c.o.Token == nil { // New allows this for Insecure alone
		return rpc.Identity{Kind: rpc.Owner}, nil
	}
	v := metadata.ValueFromIncomingContext(ctx, rpc.MetaAuth)
	if len(v) == 0 {
		return rpc.Identity{}, errNoToken
	}
	const scheme = "Bearer "
	if len(v) != 1 || len(v[0]) <= len(scheme) || !strings.EqualFold(v[0][:len(scheme)], scheme) {
		return rpc.Identity{}, errBadToken
	}
	id, ok := rpc.VerifyBearer(c.o.Token(), v[0][len(scheme):])
	if !ok {
		return rpc.Identity{}, errBadToken
	}
	return id, nil
}
