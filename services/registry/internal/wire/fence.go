package wire

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
)

// Fence returns the lease that a call names in its metadata; there is none when the caller
// is not the service of its holder. The transaction that writes decides whether that lease
// is still held.
func Fence(ctx context.Context) (store.Fence, bool) {
	res, token, holder, ok := rpc.FenceFrom(ctx)
	return store.Fence{Resource: res, Token: token}, ok && CheckHolder(ctx, res, holder) == nil
}

// RequireFence returns the fence of a call that must name a lease of a resource. A call
// without one is an error with code Aborted and reason LEASE_LOST, a call under the lease of
// another service one with reason PERMISSION_DENIED.
func RequireFence(ctx context.Context, resource string) (store.Fence, error) {
	res, token, holder, ok := rpc.FenceFrom(ctx)
	f := store.Fence{Resource: res, Token: token}
	if ok {
		if err := CheckHolder(ctx, res, holder); err != nil {
			return f, err
		}
	}
	if !ok || res != resource {
		return f, fault.New(codes.Aborted, fault.LeaseLost, "the call carries no lease of "+resource, "acquire the lease first")
	}
	return f, nil
}
