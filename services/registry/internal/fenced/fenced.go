// Package fenced reads the lease under which a call says it is made. Whether that holds is
// judged by the transaction that writes.
package fenced

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
)

// Of answers the lease a call says it is made under.
func Of(ctx context.Context) (store.Fence, bool) {
	res, token, _, ok := rpc.FenceFrom(ctx)
	return store.Fence{Resource: res, Token: token}, ok
}

// Under answers the fence of a call that must have one for a resource.
func Under(ctx context.Context, resource string) (store.Fence, error) {
	f, ok := Of(ctx)
	if !ok || f.Resource != resource {
		return f, fault.New(codes.Aborted, fault.LeaseLost, "the call carries no lease of "+resource, "acquire the lease first")
	}
	return f, nil
}
