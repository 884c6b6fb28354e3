package turn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Waits between repeats of a call that the registry could not answer.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

// logf keeps a line for the next call to the journal.
func (t *turn) logf(level, format string, args ...any) {
	t.logs = append(t.logs, &registrypb.LogLine{Level: level, Text: fmt.Sprintf(format, args...)})
}

// trusted answers nil while the lease is; it is asked right before whatever the
// outside world or the journal could see.
func (t *turn) trusted(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := t.w.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

func (t *turn) begin(ctx context.Context, alone bool) (*registrypb.BeginTurnResponse, error) {
	return call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.BeginTurnResponse, error) {
		return t.Journal.BeginTurn(ctx, &registrypb.BeginTurnRequest{
			AgentId: t.w.AgentID, InboxId: t.w.InboxID, Key: t.w.Key, ThreadId: t.w.ThreadID, Alone: alone, Logs: logs,
		})
	})
}

// record journals steps and a failed try; it answers the failed tries so far.
func (t *turn) record(ctx context.Context, failed *registrypb.FailedTry, steps ...*registrypb.Step) (int, error) {
	r, err := call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.RecordStepResponse, error) {
		return t.Journal.RecordStep(ctx, &registrypb.RecordStepRequest{
			AgentId: t.w.AgentID, ThreadId: t.w.ThreadID, Key: t.w.Key, Steps: steps, FailedTry: failed, Logs: logs,
		})
	})
	return int(r.GetErrorAttempts()), err
}

func (t *turn) finish(ctx context.Context, in *registrypb.FinishTurnRequest) (*registrypb.FinishTurnResponse, error) {
	in.AgentId, in.ThreadId, in.Key, in.InboxId = t.w.AgentID, t.w.ThreadID, t.w.Key, t.w.InboxID
	return call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.FinishTurnResponse, error) {
		in.Logs = logs
		return t.Journal.FinishTurn(ctx, in)
	})
}

// call makes a call to the journal, and again while the registry is away: every
// one of them may be repeated. The log lines go with it once.
func call[R any](ctx context.Context, t *turn, do func(context.Context, []*registrypb.LogLine) (R, error)) (R, error) {
	var none R
	wait := firstWait
	for {
		if err := t.trusted(ctx); err != nil {
			return none, err
		}
		r, err := do(ctx, t.logs)
		if err == nil {
			t.logs = nil
			return r, nil
		}
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		f := fault.From(err)
		switch {
		case f.Reason == fault.LeaseLost:
			return none, fmt.Errorf("%w: %w", ErrLost, err)
		case f.Code == codes.Aborted:
			return none, fmt.Errorf("%w: %w", ErrStale, err)
		case f.Code == codes.Unavailable, f.Code == codes.DeadlineExceeded, f.Code == codes.ResourceExhausted:
		default:
			return none, fmt.Errorf("call journal: %w", err)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return none, context.Cause(ctx)
		case <-timer.C:
		}
		wait = min(2*wait, lastWait)
	}
}
