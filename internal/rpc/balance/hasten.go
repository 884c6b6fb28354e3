package balance

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// patience is how long a short call waits for one registry before it asks another.
const patience = 3 * time.Second

// hasten lets a call that is safe to repeat, and does not wait for anything, ask more than
// one registry within its deadline: one that was stopped answers nobody, and is known to
// be gone only when the connection is given up. The last try has all the time that is left.
func hasten(safe []string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		_, waits := req.(interface{ GetWait() *durationpb.Duration })
		end, bound := ctx.Deadline()
		if waits || !bound || !slices.Contains(safe, method) {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		for time.Until(end) >= 2*patience {
			try, cancel := context.WithTimeout(ctx, patience)
			err := invoke(try, method, req, reply, cc, opts...)
			over := try.Err() != nil
			cancel()
			if !over || ctx.Err() != nil || status.Code(err) != codes.DeadlineExceeded {
				return err
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}
