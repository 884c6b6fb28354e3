package toolset

import (
	"context"
	"crypto/sha256"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/tracing"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// Unknown is what the journal and the model read about a call whose end is not known.
const Unknown = "outcome unknown, verify before repeating: the program that ran this command was interrupted"

// Journal holds the steps of one turn.
type Journal interface {
	// Tool is the step of a call; nil: there is none.
	Tool(key string) *registrypb.Step
	// NextSeq is the number of the next step.
	NextSeq() int32
	// Write writes steps and what they send to the peer, in one transaction.
	Write(ctx context.Context, says []*registrypb.Saying, rows ...*registrypb.Step) error
	// WriteLater leaves a step for the next write: of a call that ended with the turn's work.
	WriteLater(row *registrypb.Step)
}

// Watcher is notified of calls; n is the place of a call in its answer, from 1.
type Watcher interface {
	ToolStart(n int, c model.ToolCall)
	// Progress is what a call may print to, from any goroutine.
	Progress(n int, c model.ToolCall) func(text string)
	ToolEnd(n int, c model.ToolCall, result []byte)
}

// Meter counts.
type Meter interface {
	ObserveStep(kind string, d time.Duration)
}

// Calls makes the calls of one turn. All fields but Trace are required.
type Calls struct {
	Set     Set
	Place   Place
	Key     string // of the turn
	Journal Journal
	Watcher Watcher
	Meter   Meter
	Trace   *tracing.Tracer // nil: no traces
	// Logf writes a line of the agent's log.
	Logf func(level, format string, args ...any)
}

// Intent is the journal row of a call before it is made (T4).
func (c *Calls) Intent(key string, made model.ToolCall) *registrypb.Step {
	sum := sha256.Sum256(made.Arguments)
	return &registrypb.Step{
		Seq: c.Journal.NextSeq(), Kind: registrypb.StepKind_STEP_KIND_TOOL, Key: key, RequestSha256: sum[:],
		Class: classes[c.Set.Class(c.call(key, made))], State: registrypb.StepState_STEP_STATE_INTENT,
		Name: made.Name, CallId: made.ID, Arguments: string(made.Arguments),
	}
}

var classes = map[Class]registrypb.ToolClass{
	Read:       registrypb.ToolClass_TOOL_CLASS_READ,
	Idempotent: registrypb.ToolClass_TOOL_CLASS_IDEMPOTENT,
	Effect:     registrypb.ToolClass_TOOL_CLASS_EFFECT,
}

func (c *Calls) call(key string, made model.ToolCall) Call {
	return Call{Key: c.Key + ":" + key, Name: made.Name, Args: made.Arguments, Problem: made.Problem, Place: c.Place}
}

// Use returns the result of the nth call of an answer: from the journal, or by making it
// (T5) and journaling what came out (T6). begun: it may have been made already.
func (c *Calls) Use(ctx context.Context, key string, n int, made model.ToolCall, begun bool) (string, error) {
	row := c.Journal.Tool(key)
	if row == nil { // an answer and its intents are one transaction; this is for journals of others
		row = c.Intent(key, made)
		if err := c.Journal.Write(ctx, nil, row); err != nil {
			return "", err
		}
	}
	if row.GetState() != registrypb.StepState_STEP_STATE_INTENT {
		return string(row.GetResult()), nil
	}
	var says []*registrypb.Saying
	done := proto.CloneOf(row)
	c.Watcher.ToolStart(n, made)
	if begun && row.GetClass() == registrypb.ToolClass_TOOL_CLASS_EFFECT {
		done.State, done.Result = registrypb.StepState_STEP_STATE_IN_DOUBT, Problem(Unknown)
		c.Logf("WARN", "tool: %s (%s) is in doubt, it was interrupted", made.Name, key)
	} else {
		if err := c.Place.Trusted(ctx); err != nil {
			return "", err
		}
		call, start := c.call(key, made), time.Now()
		call.Progress = c.Watcher.Progress(n, made)
		fault.Point("T5.before")
		result := c.run(ctx, call).valid()
		fault.Point("T5.after")
		took := time.Since(start)
		done.State, done.Result, done.Duration = registrypb.StepState_STEP_STATE_DONE, annotate(result.encode(), made.Note), durationpb.New(took)
		for _, m := range result.Messages {
			says = append(says, &registrypb.Saying{StepKey: key, Text: m.Text})
		}
		c.Meter.ObserveStep("tool", took)
		c.Logf("INFO", "tool: %s (%s) %d ms", made.Name, key, took.Milliseconds())
	}
	if ctx.Err() != nil {
		// It was ended in the middle. That much is known, and goes with the fate;
		// what it would have said does not.
		if says == nil {
			c.Journal.WriteLater(done)
		}
		return "", context.Cause(ctx)
	}
	if err := c.Journal.Write(ctx, says, done); err != nil {
		return "", err
	}
	c.Watcher.ToolEnd(n, made, done.GetResult())
	return string(done.GetResult()), nil
}

func (c *Calls) run(ctx context.Context, call Call) Result {
	ctx, span := c.Trace.Tool(ctx, call.Name, call.Key)
	defer span.End()
	return c.Set.Run(ctx, call)
}
