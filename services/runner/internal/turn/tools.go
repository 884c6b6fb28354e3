package turn

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/approval"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/tool"
)

// plan journals an answer together with all its intents, in one call (T3, T4).
func (t *turn) plan(ctx context.Context, round int, a step.Answer, answer *registrypb.Step) error {
	steps := []*registrypb.Step{answer}
	for n, c := range a.ToolCalls {
		steps = append(steps, step.Intent(t.book.NextSeq(), round, n+1, c))
	}
	return t.keep(ctx, steps...)
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
	done := proto.CloneOf(row)
	if key == begunBefore && row.GetClass() == registrypb.ToolClass_TOOL_CLASS_EFFECT {
		done.State, done.Result = registrypb.StepState_STEP_STATE_IN_DOUBT, tool.Problem(step.Unknown)
		t.logf("WARN", "tool: %s (%s) is in doubt, it was interrupted", c.Name, key)
	} else {
		if err := t.trusted(ctx); err != nil {
			return "", err
		}
		t.w.Emit(run.Item{Kind: run.Tool, Phase: run.Start, Tool: c.Name, CallID: c.ID, Text: string(c.Arguments)})
		start := time.Now()
		fault.Point("T5.before")
		done.Result = t.runTool(ctx, key, c)
		fault.Point("T5.after")
		took := time.Since(start)
		done.State, done.Duration = registrypb.StepState_STEP_STATE_DONE, durationpb.New(took)
		t.Meter.ObserveStep("tool", took)
		t.logf("INFO", "tool: %s (%s) %d ms", c.Name, key, took.Milliseconds())
		t.w.Emit(run.Item{Kind: run.Tool, Phase: run.End, Tool: c.Name, CallID: c.ID, Text: string(done.GetResult())})
	}
	if ctx.Err() != nil {
		// It was killed in the middle. That much is known, and goes with the fate.
		t.unwritten = append(t.unwritten, done)
		return "", context.Cause(ctx)
	}
	if err := t.keep(ctx, done); err != nil {
		return "", err
	}
	return string(done.GetResult()), nil
}

func (t *turn) runTool(ctx context.Context, key string, c step.Call) []byte {
	cfg := t.begun.GetConfig()
	box, err := t.Sandbox(cfg.GetSandboxMode())
	if err != nil {
		return tool.Problem(fault.From(err).What)
	}
	at := tool.Place{
		AgentID: t.w.AgentID, ThreadID: t.w.ThreadID, Fence: t.w.Fence,
		Workdir: cfg.GetWorkdir(), Network: cfg.GetSandboxNetwork(),
	}
	made := tool.Call{Key: t.w.Key + ":" + key, Name: c.Name, Arguments: c.Arguments}
	if cfg.GetAskApproval() {
		if err := approval.Ask(ctx, t.Approvals, t.trusted, approval.Question{Place: at, Call: made, Mode: cfg.GetSandboxMode()}); err != nil {
			return tool.Problem(err.Error())
		}
	}
	return tool.Run(ctx, box, at, made)
}
