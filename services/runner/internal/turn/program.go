package turn

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/session"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/window"
)

const stepDone = registrypb.StepState_STEP_STATE_DONE

// program makes one call of a program that runs its own tools: one step of class
// effect, begun in the journal before it starts. What its tools do is journaled
// while it runs, so a call that fails goes on, at the next try, after the tools
// that have run; an interrupted one is in doubt and is not made again.
func (t *turn) program(ctx context.Context) (step.Answer, *registrypb.Step, *modelcall.Try, error) {
	if rows := t.steps.InDoubt(); len(rows) > 0 { // begun by another model of this turn
		if err := t.steps.Write(ctx, nil, rows...); err != nil {
			return step.Answer{}, nil, nil, err
		}
	}
	said, err := t.merged(ctx, 1, false)
	if err != nil {
		return step.Answer{}, nil, nil, err
	}
	written, _ := t.steps.Blocks(1) // by another model of this turn
	said = append(slices.Clip(said), writtenBefore(written)...)
	all := func() []model.Message { return append(slices.Clip(said), t.steps.Messages(false)...) }
	if err := t.requests.Fit(ctx, all()); err != nil {
		return step.Answer{}, nil, nil, err
	}
	for {
		req, p := t.requests.Request(all())
		req.Try, req.Away = t.tries+t.away+1, t.away
		a, row, try, err := t.callProgram(ctx, req)
		if err != nil || try.Err == nil {
			return a, row, nil, err
		}
		if err := t.noAnswer(row, try); err != nil {
			return step.Answer{}, nil, nil, err
		}
		if try.Err.Class != model.ContextTooLong {
			return step.Answer{}, nil, &try, nil
		}
		// That it has failed is known: it must not look interrupted while a digest is made.
		if err := t.steps.Write(ctx, nil, t.unwritten...); err != nil {
			return step.Answer{}, nil, nil, err
		}
		t.unwritten = nil
		if again, err := t.requests.Squeeze(ctx, all(), p); err != nil || !again {
			return step.Answer{}, nil, &try, err
		}
	}
}

// callProgram makes one call: its row is journaled before it starts, and answered
// with its result, which is not.
func (t *turn) callProgram(ctx context.Context, req model.Request) (step.Answer, *registrypb.Step, modelcall.Try, error) {
	t.last = transcript{}
	t.Sessions.Drop(t.begun.GetConfig().GetSessionsDir(), t.w.ThreadID)
	t.out.Call("", nil)
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	n, uses, begun := t.steps.Calls()+1, 0, time.Time{}
	var row *registrypb.Step
	at := window.Place(t.begun.GetConfig(), t.w.AgentID, t.w.ThreadID)
	at.Key, at.Fence = t.w.Key+":"+step.CallKey(n), t.w.Fence
	at.Spare = t.tries+1 < maxTries(t.begun.GetConfig())
	at.Begin = func() error {
		row = step.ProgramCall(t.steps.NextSeq(), n, t.model.Provider, req)
		if err := t.steps.Write(ctx, nil, row); err != nil {
			stop(err)
			return err
		}
		fault.Point("T3.before")
		return t.trusted(ctx)
	}
	called := time.Now()
	resp, try := t.model.Program(at)(work, req, func(d model.Delta) {
		switch {
		case d.Tool == nil:
			t.out.Delta(d)
			return
		case work.Err() != nil:
			return // what it says while it is being ended is not journaled
		case d.Tool.Result == nil:
			uses, begun = uses+1, time.Now()
		}
		if err := t.used(ctx, n, uses, *d.Tool, time.Since(begun)); err != nil {
			stop(err)
		}
	})
	fault.Point("T3.after")
	t.called(called, try)
	if work.Err() != nil {
		t.unwritten = t.steps.Interrupted()
		return step.Answer{}, nil, modelcall.Try{}, context.Cause(work)
	}
	if try.Err == nil && strings.TrimSpace(resp.Text) == "" {
		try = *t.bad(model.NoText(resp))
	}
	if try.Err != nil {
		return step.Answer{}, row, try, nil
	}
	a, result, tooLarge := step.NewAnswer(resp, nil)
	if tooLarge != nil {
		return a, row, *t.bad(tooLarge), nil
	}
	row = step.WithResult(row, stepDone, result)
	row.Duration = durationpb.New(resp.Duration)
	t.Meter.ObserveStep("model", resp.Duration)
	t.logf("INFO", "model: %s/%s %d ms, %d tool calls of its own", t.model.Provider, req.Model, resp.Duration.Milliseconds(), uses)
	if sign := pai.Truncated(resp.Text); sign != "" { // and there was no other try to make
		t.logf("WARN", "model: the answer of %s %s: it may be cut", row.GetKey(), sign)
	}
	t.out.EndAnswer()
	return a, row, modelcall.Try{}, nil
}

// noAnswer settles a call that failed; row is nil when it was never begun. Where
// a tool of it has no end the call is in doubt; else the failure is known, and
// another try may be made.
func (t *turn) noAnswer(row *registrypb.Step, failed modelcall.Try) error {
	if len(t.steps.Open()) > 0 {
		t.logf("WARN", "model: %s broke off in the middle of a tool: %s", row.GetKey(), failed.Err.Error())
		return errInDoubt
	}
	if row != nil {
		row = step.WithResult(row, stepDone, step.NoAnswer(failed.Err.Error()))
		t.steps.Add(row)
		t.unwritten = append(t.unwritten, row)
	}
	return nil
}

// used journals what a program's tool does: its beginning (T4), or its end with
// the record event (T6).
func (t *turn) used(ctx context.Context, n, j int, u model.ToolUse, took time.Duration) error {
	row := t.steps.Tool(step.UseKey(n, j))
	if u.Result == nil {
		row = step.ProgramTool(t.steps.NextSeq(), n, j, u.Call)
	} else {
		row = step.WithResult(row, stepDone, toolset.Fit(u.Result))
		row.Duration = durationpb.New(took)
		t.Meter.ObserveStep("tool", took)
		t.logf("INFO", "tool: %s (%s) %d ms, run by %s", u.Call.Name, row.GetKey(), took.Milliseconds(), t.model.Provider)
	}
	if err := t.steps.Write(ctx, nil, row); err != nil {
		return err
	}
	if u.Result == nil {
		t.out.ToolStart(toolset.Shown{Step: row})
	} else {
		t.out.ToolEnd(toolset.Shown{Step: row})
	}
	return nil
}

// inDoubt ends the turn because a call of a program was interrupted: only a person
// can decide whether it may be made again.
func (t *turn) inDoubt(ctx context.Context) (Result, error) {
	t.unwritten = append(t.unwritten, t.steps.Interrupted()...)
	if dir := t.begun.GetConfig().GetSessionsDir(); dir != "" {
		session.At(dir, t.w.ThreadID).Tidy() // a runner that was killed could not
	}
	return t.die(ctx, "in doubt", "the program was "+step.InterruptedText+"; it is not run again by itself: see the records of its tools, then send the message again or let it be", &registrypb.FailedTry{})
}
