package rpc

import (
	"context"
	"strings"
)

// Kind is what sort of caller somebody is.
type Kind string

// The kinds of callers. What each may do is the policy's business.
const (
	Owner   Kind = "owner"   // the human whose home this is, through agentctl; shows the token itself
	Service Kind = "service" // runner, deliverer, registry; Name is which
	Agent   Kind = "agent"   // an agent's own call out of its sandbox; Name is its id
)

// Identity is an authenticated caller; the zero value is nobody.
type Identity struct {
	Kind Kind
	Name string // empty for the owner
}

// Role is which service a service is: of runner-2 it is runner. It is empty for
// everybody else.
func (id Identity) Role() string {
	if id.Kind != Service {
		return ""
	}
	role := id.Name
	if i := strings.IndexFunc(role, func(r rune) bool { return r < 'a' || r > 'z' }); i >= 0 {
		role = role[:i]
	}
	return role
}

// Call is what the server knows about the call being handled. It belongs to one
// call; handlers read it through the functions below.
type Call struct {
	RequestID string
	Identity  Identity
	Draining  <-chan struct{} // closed when the server begins to drain
}

type callKey struct{}

// WithCall is for the server's interceptors.
func WithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// CallFrom returns the call being handled, nil outside of one.
func CallFrom(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// IdentityFrom returns the authenticated caller; ok is false for nobody.
func IdentityFrom(ctx context.Context) (id Identity, ok bool) {
	if c := CallFrom(ctx); c != nil {
		id = c.Identity
	}
	return id, id.Kind != ""
}

// RequestID returns the id that joins the log lines of one request in all
// services; "" outside of a call. A client call made with ctx carries it on.
func RequestID(ctx context.Context) string {
	if c := CallFrom(ctx); c != nil {
		return c.RequestID
	}
	return ""
}

// Draining is closed when the server handling ctx begins to drain. A long poll
// selects on it and answers early, so that the drain does not wait for it. It
// is nil, which never becomes ready, outside of a call.
func Draining(ctx context.Context) <-chan struct{} {
	if c := CallFrom(ctx); c != nil {
		return c.Draining
	}
	return nil
}
