package turn

import (
	"context"
	"fmt"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/rpc/runs"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/step"
)

// maxLogLine bounds a line of the agent's log, in bytes.
const maxLogLine = 4096

// logf keeps a line for the next call to the journal.
func (t *turn) logf(level, format string, args ...any) {
	t.logs = append(t.logs, logLine(level, format, args...))
}

func logLine(level, format string, args ...any) *registrypb.LogLine {
	text, _ := boundary.Text(fmt.Sprintf(format, args...), maxLogLine)
	return &registrypb.LogLine{Level: level, Text: text}
}

// trusted returns nil while the lease is; it is asked right before whatever the
// outside world or the journal could see.
func (t *turn) trusted(ctx context.Context) error {
	return t.w.trusted(ctx)
}

func (w Work) trusted(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := w.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

func (t *turn) begin(ctx context.Context, alone bool) (*registrypb.BeginTurnResponse, error) {
	members, short := t.w.Slot.Collect()
	return call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.BeginTurnResponse, error) {
		ctx, span := t.Trace.Start(ctx, "claim")
		defer span.End()
		r, err := t.Journal.BeginTurn(ctx, &registrypb.BeginTurnRequest{
			AgentId: t.w.AgentID, InboxId: t.w.InboxID, Key: t.w.Key, ThreadId: t.w.ThreadID, Alone: alone, Logs: logs, Members: members,
			Unread:    int32(short),
			GivenBack: t.w.Slot.GivenBack(),
		})
		if err != nil {
			return nil, err
		}
		return r, localDirs(t.w.AgentID, t.Root, r.GetConfig())
	})
}

// readSteps adds the steps to a claim that its answer had no room for.
func (t *turn) readSteps(ctx context.Context, b *registrypb.BeginTurnResponse) error {
	if !b.GetMoreSteps() {
		return nil
	}
	of := &registrypb.Turn{AgentId: t.w.AgentID, InboxId: t.w.InboxID, Key: t.w.Key, Steps: b.GetSteps(), MoreSteps: b.GetMoreSteps()}
	_, err := registrycall.Call(ctx, t.trusted, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, runs.ReadSteps(ctx, t.Journal, of)
	})
	b.Steps, b.MoreSteps = of.GetSteps(), of.GetMoreSteps()
	return err
}

// record journals steps and a failed try; it returns the failed tries so far.
func (t *turn) record(ctx context.Context, failed *registrypb.FailedTry, says []*registrypb.Saying, steps ...*registrypb.Step) (int, error) {
	r, err := call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.RecordStepResponse, error) {
		return t.Journal.RecordStep(ctx, &registrypb.RecordStepRequest{
			AgentId: t.w.AgentID, ThreadId: t.w.ThreadID, Key: t.w.Key, Steps: steps, FailedTry: failed, Says: says, Logs: logs,
		})
	})
	return int(r.GetErrorAttempts()), err
}

// checkSaying returns nil when the registry would take a message that a tool sends.
func (t *turn) checkSaying(ctx context.Context, said *registrypb.Saying) error {
	_, err := registrycall.Call(ctx, t.trusted, func(ctx context.Context) (*registrypb.RecordStepResponse, error) {
		return t.Journal.RecordStep(ctx, &registrypb.RecordStepRequest{
			AgentId: t.w.AgentID, ThreadId: t.w.ThreadID, Key: t.w.Key, Says: []*registrypb.Saying{said}, Check: true,
		})
	})
	return err
}

// waiting records that the turn begins to wait for a person.
func (t *turn) waiting(ctx context.Context) error {
	_, err := call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.RecordStepResponse, error) {
		return t.Journal.RecordStep(ctx, &registrypb.RecordStepRequest{AgentId: t.w.AgentID, ThreadId: t.w.ThreadID, Key: t.w.Key, Waits: true, Logs: logs})
	})
	return err
}

// steer journals the messages that are merged before a round's call, and returns the
// step that holds them; nil when none of them can be.
func (t *turn) steer(ctx context.Context, key string, members []*registrypb.Member) (*registrypb.Step, error) {
	seq := t.steps.NextSeq()
	r, err := call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.RecordStepResponse, error) {
		return t.Journal.RecordStep(ctx, &registrypb.RecordStepRequest{
			AgentId: t.w.AgentID, ThreadId: t.w.ThreadID, Key: t.w.Key, Members: members, SteerKey: key, SteerSeq: seq, Logs: logs,
		})
	})
	if r.GetSteer() != nil {
		t.steps.Add(r.GetSteer())
	}
	return r.GetSteer(), err
}

func (t *turn) finish(ctx context.Context, in *registrypb.FinishTurnRequest) (*registrypb.FinishTurnResponse, error) {
	in.AgentId, in.ThreadId, in.Key, in.InboxId = t.w.AgentID, t.w.ThreadID, t.w.Key, t.w.InboxID
	return call(ctx, t, func(ctx context.Context, logs []*registrypb.LogLine) (*registrypb.FinishTurnResponse, error) {
		ctx, span := t.Trace.Start(ctx, "reply")
		defer span.End()
		in.Logs = logs
		return t.Journal.FinishTurn(ctx, in)
	})
}

// call makes a call to the journal; the log lines go with it once.
func call[R any](ctx context.Context, t *turn, do func(context.Context, []*registrypb.LogLine) (R, error)) (R, error) {
	r, err := registrycall.Call(ctx, t.trusted, func(ctx context.Context) (R, error) { return do(ctx, t.logs) })
	if err == nil {
		t.logs = nil
	}
	return r, err
}

// steps are what the journal holds of the turn. Writes go through its calls.
type steps struct {
	step.Log
	t *turn
}

// Write implements [toolset.Journal].
func (s *steps) Write(ctx context.Context, says []*registrypb.Saying, rows ...*registrypb.Step) error {
	if _, err := s.t.record(ctx, nil, says, rows...); err != nil {
		return err
	}
	for _, row := range rows {
		s.Add(row)
	}
	return nil
}

// WriteLater implements [toolset.Journal].
func (s *steps) WriteLater(row *registrypb.Step) { s.t.unwritten = append(s.t.unwritten, row) }
