package turn

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/tool"
)

// plan journals an answer together with all its intents, in one call (T3, T4).
func (t *turn) plan(ctx context.Context, round int, a step.Answer, answer *registrypb.Step) error {
	steps := []*registrypb.Step{answer}
	for n, c := range a.ToolCalls {
		steps = append(steps, step.Intent(t.book.NextSeq(), round, n+1, c))
	}
	if err := t.keepSaid(ctx, a.Says(answer.GetKey()), steps...); err != nil {
		return err
	}
	t.voice.Settled()
	return nil
}

// joined adds the messages that join before a round's call: those the journal
// has, or those that wait now, when the call is still to be made.
func (t *turn) joined(ctx context.Context, round int, said []model.Message, open bool) ([]model.Message, error) {
	row := t.book.Steer(step.SteerKey(round))
	if row == nil && open && round > 1 {
		if members := t.w.Slot.Steer(); len(members) > 0 {
			var err error
			if row, err = t.steer(ctx, step.SteerKey(round), members); err != nil {
				return said, err
			}
		}
	}
	messages, err := step.Joined(row)
	return append(said, messages...), err
}

// use answers the result of a tool call: from the journal, or by running it
// (T5) and journalling what came out (T6). begunBefore is the step that may have
// run already.
func (t *turn) use(ctx context.Context, round, n int, c step.Call, begunBefore string) (string, error) {
	key := step.ToolKey(round, n)
	row := t.book.Tool(key)
	if row == nil { // an answer and its intents are one transaction; this is for journals of others
		row = step.Intent(t.book.NextSeq(), round, n, c)
		if err := t.keep(ctx, row); err != nil {
			return "", err
		}
	}
	if row.GetState() != registrypb.StepState_STEP_STATE_INTENT {
		return string(row.GetResult()), nil
	}
	var says []*registrypb.Saying
	done := proto.CloneOf(row)
	told := model.ToolCall{ID: c.ID, Name: c.Name, Arguments: c.Arguments}
	t.voice.ToolStart(n, told)
	if key == begunBefore && row.GetClass() == registrypb.ToolClass_TOOL_CLASS_EFFECT {
		done.State, done.Result = registrypb.StepState_STEP_STATE_IN_DOUBT, tool.Problem(step.Unknown)
		t.logf("WARN", "tool: %s (%s) is in doubt, it was interrupted", c.Name, key)
	} else {
		if err := t.trusted(ctx); err != nil {
			return "", err
		}
		start := time.Now()
		fault.Point("T5.before")
		if c.Name == tool.Send && t.begun.GetConfig().GetMessageTool() {
			done.Result, says = step.Send(key, c.Arguments)
		} else {
			done.Result = t.Shell.Run(ctx, t.trusted, t.begun.GetConfig(), tool.Place{AgentID: t.w.AgentID, ThreadID: t.w.ThreadID, Fence: t.w.Fence},
				tool.Call{Key: t.w.Key + ":" + key, Name: c.Name, Arguments: c.Arguments, Output: t.voice.Output(n, told)})
		}
		fault.Point("T5.after")
		took := time.Since(start)
		done.State, done.Duration = registrypb.StepState_STEP_STATE_DONE, durationpb.New(took)
		t.Meter.ObserveStep("tool", took)
		t.logf("INFO", "tool: %s (%s) %d ms", c.Name, key, took.Milliseconds())
	}
	if ctx.Err() != nil {
		// It was killed in the middle. That much is known, and goes with the fate;
		// what it would have said does not.
		if says == nil {
			t.unwritten = append(t.unwritten, done)
		}
		return "", context.Cause(ctx)
	}
	if err := t.keepSaid(ctx, says, done); err != nil {
		return "", err
	}
	t.voice.ToolEnd(n, told, done.GetResult())
	return string(done.GetResult()), nil
}
