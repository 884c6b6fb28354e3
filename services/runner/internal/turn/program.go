package turn

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/tool"
)

// cutShort is what stands in the journal for a call of a program that was ended
// in the middle, by whomever.
const cutShort = "interrupted in the middle: what it was doing then may have happened or not"

// program makes one call of a program that runs its own tools: one step of class
// effect, begun in the journal before it starts. What its tools do is journalled
// while it runs, so a call that fails goes on, at the next try, after the tools
// that have run; one that was cut off is in doubt and is not made again.
func (t *turn) program(ctx context.Context) (Result, *Try, error) {
	if err := t.doubtEarlier(ctx); err != nil {
		return Result{}, nil, err
	}
	req, _ := t.request(t.ran(func(*registrypb.Step) bool { return true }))
	t.last = transcript{}
	t.partial.Reset()
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := t.begun.GetConfig()
	n := t.calls + 1
	var row *registrypb.Step
	try := t.model.Program(pai.Place{
		AgentID: t.w.AgentID, ThreadID: t.w.ThreadID, Key: t.w.Key + ":" + step.CallKey(n), Fence: t.w.Fence,
		SandboxMode: c.GetSandboxMode(), Workdir: c.GetWorkdir(), Sessions: c.GetSessionsDir(),
		Begin: func() error {
			row = step.ProgramCall(t.nextSeq(), n, t.model.Provider, req)
			if _, err := t.record(ctx, nil, row); err != nil {
				stop(err)
				return err
			}
			t.learn(row)
			fault.Point("T3.before")
			return t.trusted(ctx)
		},
	})
	uses := 0
	var begun time.Time
	resp, failed := try(work, req, func(d model.Delta) {
		if d.Tool == nil {
			t.delta(d)
			return
		}
		if work.Err() != nil {
			return // what it says while it is being ended is not journalled
		}
		if d.Tool.Result == nil {
			uses, begun = uses+1, time.Now()
		}
		if err := t.used(ctx, n, uses, *d.Tool, time.Since(begun)); err != nil {
			stop(err)
		}
	})
	fault.Point("T3.after")
	if work.Err() != nil {
		t.unwritten = t.cutOff()
		return Result{}, nil, context.Cause(work)
	}
	answered := failed.Err == nil
	if answered && strings.TrimSpace(resp.Text) == "" {
		failed = *bad(model.Errorf(model.BadResponse, "the model answered nothing"))
	}
	var a step.Answer
	if failed.Err == nil {
		var result []byte
		var tooLarge *model.Error
		if a, result, tooLarge = step.NewAnswer(resp); tooLarge != nil {
			failed = *bad(tooLarge)
		} else {
			row = settled(row, registrypb.StepState_STEP_STATE_DONE, result)
			row.Duration = durationpb.New(resp.Duration)
		}
	}
	if failed.Err != nil {
		return t.noAnswer(ctx, row, failed)
	}
	t.Meter.ObserveStep("model", resp.Duration)
	t.logf("INFO", "model: %s/%s %d ms, %d tool calls of its own", t.model.Provider, req.Model, resp.Duration.Milliseconds(), uses)
	result, err := t.reply(ctx, a, row)
	return result, nil, err
}

// noAnswer settles a call that failed. Where a tool of it has no end, the call is
// in doubt; else the failure is known, and another try may be made.
func (t *turn) noAnswer(ctx context.Context, row *registrypb.Step, failed Try) (Result, *Try, error) {
	if row == nil { // it was never begun
		return Result{}, &failed, nil
	}
	for _, key := range t.order {
		if s := t.tool[key]; step.OfProgram(s) && s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			t.logf("WARN", "model: %s broke off in the middle of a tool: %s", row.GetKey(), failed.Err.Error())
			result, err := t.inDoubt(ctx, t.cutOff())
			return result, nil, err
		}
	}
	row = settled(row, registrypb.StepState_STEP_STATE_DONE, step.NoAnswer(failed.Err.Error()))
	t.learn(row)
	t.unwritten = append(t.unwritten, row)
	return Result{}, &failed, nil
}

// used journals what a program's tool does: its beginning (T4), or its end with
// the record event (T6).
func (t *turn) used(ctx context.Context, n, j int, u model.ToolUse, took time.Duration) error {
	c := u.Call
	row := t.tool[step.UseKey(n, j)]
	if u.Result == nil {
		row = step.ProgramTool(t.nextSeq(), n, j, c)
		t.w.Emit(run.Item{Kind: run.Tool, Phase: run.Start, Tool: c.Name, CallID: c.ID, Text: row.GetArguments()})
	} else {
		row = settled(row, registrypb.StepState_STEP_STATE_DONE, tool.Fit(u.Result))
		row.Duration = durationpb.New(took)
		t.Meter.ObserveStep("tool", took)
		t.logf("INFO", "tool: %s (%s) %d ms, run by %s", c.Name, row.GetKey(), took.Milliseconds(), t.model.Provider)
		t.w.Emit(run.Item{Kind: run.Tool, Phase: run.End, Tool: c.Name, CallID: c.ID, Text: string(row.GetResult())})
	}
	if _, err := t.record(ctx, nil, row); err != nil {
		return err
	}
	t.learn(row)
	return nil
}

// settled is a step with its end.
func settled(row *registrypb.Step, state registrypb.StepState, result []byte) *registrypb.Step {
	row = proto.CloneOf(row)
	row.State, row.Result = state, result
	return row
}

// cutOff are the steps of a program that began and have no end, as they are to
// be journalled: in doubt.
func (t *turn) cutOff() []*registrypb.Step {
	var rows []*registrypb.Step
	for n := 1; n <= t.calls; n++ {
		if s := t.answer[step.CallKey(n)]; s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			rows = append(rows, settled(s, registrypb.StepState_STEP_STATE_IN_DOUBT, step.NoAnswer(cutShort)))
		}
	}
	for _, key := range t.order {
		if s := t.tool[key]; step.OfProgram(s) && s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			rows = append(rows, settled(s, registrypb.StepState_STEP_STATE_IN_DOUBT, tool.Problem(inDoubt)))
		}
	}
	return rows
}

// inDoubt ends the turn because a call of a program was cut off: only a person
// can know whether it may be made again.
func (t *turn) inDoubt(ctx context.Context, rows []*registrypb.Step) (Result, error) {
	t.unwritten = append(t.unwritten, rows...)
	return t.die(ctx, "in doubt", "the program was "+cutShort+"; it is not run again by itself: see the records of its tools, then send the message again or let it be")
}

// doubtEarlier settles tools that another driver of this turn began and did not
// end: the agent's model was changed in between.
func (t *turn) doubtEarlier(ctx context.Context) error {
	var rows []*registrypb.Step
	for _, key := range t.order {
		if s := t.tool[key]; s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			rows = append(rows, settled(s, registrypb.StepState_STEP_STATE_IN_DOUBT, tool.Problem(inDoubt)))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := t.record(ctx, nil, rows...); err != nil {
		return err
	}
	for _, s := range rows {
		t.learn(s)
	}
	return nil
}

// ran are the tools of this turn that have ended, as the model reads them.
func (t *turn) ran(which func(*registrypb.Step) bool) []model.Message {
	var said []model.Message
	for _, key := range t.order {
		s := t.tool[key]
		if !which(s) || s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			continue
		}
		said = append(said,
			model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: s.GetCallId(), Name: s.GetName(), Arguments: []byte(s.GetArguments())}}},
			model.Message{Role: model.RoleTool, ToolCallID: s.GetCallId(), Name: s.GetName(), Text: string(s.GetResult())})
	}
	return said
}
