// Package registrycall repeats the calls of a turn to the registry while the registry is
// away, and makes none under a lease that is not trusted.
//
// A call is given up only when the context ends, the lease is lost, or repeating it cannot
// help (it cannot be encoded, is too large, or is refused); the error says which. Every call made through it must be
// repeatable. It defines no call itself and keeps no state.
package registrycall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
)

var (
	// ErrLost means that the lease is gone; its holder goes on.
	ErrLost = errors.New("turn stopped: the lease is lost")
	// ErrStale means that another event has the inbox id.
	ErrStale = errors.New("turn dropped: the inbox has another event under this id")
	// errRefused means that the registry, or the layer that carries the call, never takes
	// it: what is in it is a defect of ours, or of the registry.
	errRefused = errors.New("the registry refused the call")
)

// firstWait is the ceiling of the wait before the first repeat of a call that the
// registry could not answer.
const firstWait = 50 * time.Millisecond

// internalRepeats is how often a call is repeated that failed inside the registry: a panic
// there may not come again, and a repeat costs nothing.
const internalRepeats = 2

var backoff = pause.Backoff{First: firstWait, Last: 2 * time.Second}

// Call makes a call, and again while the registry is away. trusted is asked
// before each.
func Call[R any](ctx context.Context, trusted func(context.Context) error, do func(context.Context) (R, error)) (R, error) {
	var none R
	for failures := 0; ; failures++ {
		if err := trusted(ctx); err != nil {
			return none, err
		}
		r, err := do(ctx)
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		f := fault.From(err)
		switch {
		case refused(f) && (failures >= internalRepeats || f.Code != codes.Internal):
			return none, fmt.Errorf("%w: %w", errRefused, err)
		case f.Reason == fault.LeaseLost:
			return none, fmt.Errorf("%w: %w", ErrLost, err)
		case f.Code == codes.Aborted:
			return none, fmt.Errorf("%w: %w", ErrStale, err)
		case f.Code == codes.Unavailable, f.Code == codes.DeadlineExceeded, f.Code == codes.ResourceExhausted,
			f.Code == codes.Unauthenticated, // a token or certificate that is being rotated is no lost lease
			f.Code == codes.Internal:
		default:
			return none, fmt.Errorf("call journal: %w", err)
		}
		if pause.For(ctx, backoff.Wait(failures)) != nil {
			return none, context.Cause(ctx)
		}
	}
}

// refused reports that repeating a call cannot help. A full disk and a rate limit are
// RESOURCE_EXHAUSTED too and pass; a message that is too large carries neither their
// reasons nor a time to wait.
func refused(f *fault.Error) bool {
	switch f.Code {
	case codes.InvalidArgument, codes.OutOfRange, codes.Internal, codes.Unknown, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		return f.Reason == fault.Overloaded && f.RetryAfter == 0
	default:
		return false
	}
}

// Refused reports that an error of Call is one that repeating it cannot help.
func Refused(err error) bool { return errors.Is(err, errRefused) }
