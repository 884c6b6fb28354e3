package registrycall_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
)

func trusted(context.Context) error { return nil }

// F1: what repeating cannot help is said to be so, at once or after two repeats of what
// failed inside the registry; what passes is repeated until the context ends.
func TestRefused(t *testing.T) {
	waits := &fault.Error{Code: codes.ResourceExhausted, Reason: fault.Overloaded, What: "slow down", RetryAfter: time.Second}
	for name, c := range map[string]struct {
		err     error
		calls   int
		refused bool
	}{
		"an argument":            {fault.New(codes.InvalidArgument, fault.InvalidArgument, "bad", ""), 1, true},
		"cannot be encoded":      {status.Error(codes.Internal, "grpc: error while marshaling: string field contains invalid UTF-8"), 3, true},
		"the registry fails":     {fault.New(codes.Internal, fault.Internal, "internal error", ""), 3, true},
		"too large":              {status.Error(codes.ResourceExhausted, "trying to send message larger than max"), 1, true},
		"a method it lacks":      {status.Error(codes.Unimplemented, "unknown method"), 1, true},
		"stopped":                {fault.New(codes.FailedPrecondition, fault.AgentStopped, "stopped", ""), 1, false},
		"a full disk":            {fault.New(codes.ResourceExhausted, fault.DiskFull, "full", ""), 9, false},
		"a limit of the service": {waits, 9, false},
		"away":                   {status.Error(codes.Unavailable, "away"), 9, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				calls := 0
				_, err := registrycall.Call(ctx, trusted, func(context.Context) (int, error) {
					if calls++; calls == 9 {
						cancel()
					}
					return 0, c.err
				})
				if calls != c.calls || registrycall.Refused(err) != c.refused {
					t.Errorf("%d calls, refused %v: %v", calls, registrycall.Refused(err), err)
				}
				if c.calls < 9 && !errors.Is(err, c.err) {
					t.Errorf("the cause is lost: %v", err)
				}
			})
		})
	}
	// A panic of the registry that does not come again costs nothing.
	calls := 0
	got, err := registrycall.Call(t.Context(), trusted, func(context.Context) (int, error) {
		if calls++; calls == 1 {
			return 0, status.Error(codes.Internal, "internal error")
		}
		return 7, nil
	})
	if got != 7 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}
