package serve

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/direct"
)

var (
	errNoRule = fault.New(codes.PermissionDenied, fault.PermissionDenied, "no caller may use this method", "")
	errUser   = fault.New(codes.PermissionDenied, fault.PermissionDenied,
		"the service belongs to another user", "run the command as the user that started the service")
	errRole = fault.New(codes.PermissionDenied, fault.PermissionDenied,
		"this service may not call this method", "each service has its own calls; see the access table")
	errKind = fault.New(codes.PermissionDenied, fault.PermissionDenied,
		"this caller may not call this method", "use the owner's command line")
	errNoToken = fault.New(codes.Unauthenticated, fault.Unauthenticated,
		"the call shows no token", "check that the token file next to the socket can be read")
	errBadToken = fault.New(codes.Unauthenticated, fault.Unauthenticated,
		"the token is not valid", "read the token file again: it changes when the service starts")
)

// accessUnary lets a call pass when its rule does.
func (c *chain) accessUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := c.admit(ctx, info.FullMethod, req); err != nil {
		return nil, err
	}
	resp, err := next(ctx, req)
	if err != nil && c.o.Audit != nil {
		c.o.Audit.Failed(ctx, info.FullMethod, req, err)
	}
	return resp, err
}

func (c *chain) accessStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := c.admit(ss.Context(), info.FullMethod, nil); err != nil {
		return err
	}
	err := next(srv, ss)
	if err != nil && c.o.Audit != nil {
		c.o.Audit.Failed(ss.Context(), info.FullMethod, nil, err)
	}
	return err
}

// admit judges a call and has it written down: who was refused, and what was let
// through before it happens.
func (c *chain) admit(ctx context.Context, method string, req any) error {
	err := c.access(ctx, method)
	if err == nil && c.rate != nil {
		err = c.rate.Take(rpc.CallFrom(ctx).Identity)
	}
	switch {
	case c.o.Audit == nil:
		return err
	case err != nil:
		c.o.Audit.Refused(ctx, method, origin(ctx), err)
		return err
	}
	return c.o.Audit.Admitted(ctx, method, req)
}

// origin says from where a call comes, for the record of a refusal.
func origin(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if who, ok := p.AuthInfo.(rpc.Peer); ok {
		return fmt.Sprintf("uid %d pid %d", who.UID, who.PID)
	}
	if p.Addr == nil {
		return ""
	}
	return p.Addr.String()
}

// access judges in this order: rule, user id, token (over TLS: the certificate,
// for public methods too), kind, service. It writes who called
// into the call's record, also for public methods when a good token is shown.
func (c *chain) access(ctx context.Context, method string) error {
	rule, ok := c.o.Policy[method]
	if !ok {
		return errNoRule
	}
	if _, direct := direct.Caller(ctx); c.local && !direct && !ours(ctx) {
		return errUser
	}
	id, err := c.identify(ctx)
	if err != nil && c.o.Creds != nil {
		return err
	}
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
	if id.Kind == rpc.Service && !slices.Contains(rule.Services, id.Role()) {
		return errRole
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

// certified is what a TLS connection knows of its caller.
type certified interface {
	Caller() (rpc.Identity, error)
}

func (c *chain) identify(ctx context.Context) (rpc.Identity, error) {
	if id, ok := direct.Caller(ctx); ok {
		return id, nil
	}
	if c.o.Creds != nil {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return rpc.Identity{}, errNoToken
		}
		who, ok := p.AuthInfo.(certified)
		if !ok {
			return rpc.Identity{}, errNoToken
		}
		return who.Caller()
	}
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
