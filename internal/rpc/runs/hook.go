package runs

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// RunHook runs the program of a hook at any runner, the one nearby first. A runner that is not there, or is being
// stopped, is left out; every other answer is the answer.
func (c *Client) RunHook(ctx context.Context, in *runnerpb.RunHookRequest, opts ...grpc.CallOption) (out *runnerpb.RunHookResponse, err error) {
	err = errNobody
	c.anybody(ctx, func(r runnerpb.RunnerServiceClient) bool {
		out, err = r.RunHook(ctx, in, opts...)
		return err == nil || fault.From(err).Code != codes.Unavailable
	})
	return out, err
}
