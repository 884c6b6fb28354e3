package wire

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
)

// Fence returns the lease that a call names in its metadata. The transaction that writes
// decides whether that lease is still held.
func Fence(ctx context.Context) (store.Fence, bool) {
	res, token, _, ok := rpc.FenceFrom(ctx)
	return store.Fence{Resource: res, Token: token}, ok
}

// RequireFence returns the fence of a call that must name a lease of a resource. A call
// without one is an error with code Aborted and reason LEASE_LOST.
func RequireFence(ctx context.Context, resource string) (store.Fence, error) {
	f, ok := Fence(ctx)
	if !ok || f.Resource != resource {
		return f, fault.New(codes.Aborted, fault.LeaseLost, "the call carries no lease of "+resource, "acquire the lease first")
	}
	return f, nil
}
