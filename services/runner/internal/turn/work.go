package turn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/window"
)

// turn is one claimed event. It belongs to one goroutine.
type turn struct {
	*Driver
	w     Work
	logs  []*registrypb.LogLine
	begun *registrypb.BeginTurnResponse

	steps *steps
	tools toolset.Set // of this turn, from its claim

	model   modelcall.Model
	found   bool // model is set
	tries   int  // failed tries that were charged
	away    int  // tries in a row that found the provider unavailable
	down    time.Time
	started time.Time
	waited  time.Duration // for outages and people, which the turn's time does not count
	// clock ends the work when the time of the turn is over; yield ends it for another cause.
	clock *time.Timer
	yield context.CancelCauseFunc
	out   *publisher
	// refused: the provider refuses the message itself.
	refused bool
	// panicked: the last attempt ended in a panic.
	panicked bool
	last     transcript
	sent     sent              // the newest prompt
	images   map[string][]byte // of the last request, by hash
	requests *window.Requests  // set with found
	later    *laterDigest      // follows the turn
	// unwritten are results that go with the next call to the journal.
	unwritten []*registrypb.Step
}

// transcript is what the session file shows of the turn.
type transcript struct {
	system   string
	messages []model.Message
}

// claim takes over what the journal has. The error comes from the registry, which keeps what tools of MCP
// servers are approved.
func (t *turn) claim(ctx context.Context, b *registrypb.BeginTurnResponse) (err error) {
	memory.LimitToEpoch(b)
	t.begun, t.tries, t.started = b, int(b.GetErrorAttempts()), time.Now()
	if err := t.readSteps(ctx, b); err != nil {
		return err
	}
	if w := b.GetWaited().AsDuration(); w > 0 {
		t.down = t.started.Add(-w)
	}
	ForModel(t.Models, b.GetConfig())
	if t.tools, err = t.Tools.For(ctx, t.w.AgentID, b.GetConfig()); err != nil {
		return err
	}
	if !source.IsPerson(t.w.Source) {
		t.tools = t.tools.WithoutPerson()
	}
	for _, s := range b.GetSteps() {
		t.steps.Add(s)
	}
	t.out.hides = hidesThinking(b)
	t.out.Begin(b.GetSteps())
	if n := len(b.GetSteps()); n > 0 {
		t.logf("INFO", "turn: goes on after %d journalled steps (claim %d)", n, b.GetCrashAttempts())
	}
	return nil
}

// hidesThinking reports whether clients that watch the run are not shown what the model thinks (S1-48). An owner who
// asks for thinking in one run is shown it.
func hidesThinking(b *registrypb.BeginTurnResponse) bool {
	switch b.GetConfig().GetParts().GetReasoning() {
	case config.ReasoningOff, config.ReasoningBlock:
		asked := modelcall.AskedThinking(b.GetInbound().GetSource(), b.GetInbound().GetContent())
		return asked == "" || asked == config.ReasoningOff
	}
	return false
}

// ForModel chooses the policies for tools by the model of a turn. One that is not known fails the
// turn later.
func ForModel(models modelcall.Models, c *registrypb.TurnConfig) {
	provider, name := c.GetProvider(), c.GetModel()
	if m, err := models.Find(provider, name); err == nil {
		provider, name = m.Provider, m.Name
	}
	toolset.ForModel(c, provider, name)
}

// work makes attempts until the event has its fate.
func (t *turn) work(ctx context.Context) (Result, error) {
	if t.tries >= maxTries(t.begun.GetConfig()) {
		if last := t.begun.GetError(); last != "" {
			return t.die(ctx, "", fmt.Sprintf("%s (tried %d times)", last, t.tries), nil)
		}
		return t.die(ctx, "retry", fmt.Sprintf("all %d tries were used up before", t.tries), nil)
	}
	for {
		result, failed, err := t.attempt(ctx)
		switch {
		case err == nil && failed == nil:
			return result, nil
		case ctx.Err() != nil:
			return Result{}, context.Cause(ctx)
		case err != nil:
			return t.stopped(ctx, err)
		}
		result, done, err := t.failed(ctx, failed)
		switch {
		case done:
			return result, err
		case err != nil && ctx.Err() == nil:
			return t.stopped(ctx, err)
		case err != nil:
			return Result{}, err
		}
	}
}

// attempt runs the rounds until the lease, the time of the turn or an abort ends
// them. A panic is a failed try.
func (t *turn) attempt(ctx context.Context) (result Result, failed *modelcall.Try, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.w.Abort, func() { cancel(context.Cause(t.w.Abort)) })()
	work, end := context.WithCancelCause(ctx)
	defer end(nil)
	t.yield, t.clock = end, time.AfterFunc(t.left(), func() { end(errTimeout) })
	defer t.clock.Stop()
	defer func() {
		if p := recover(); p != nil {
			t.w.Panicked(t.w.Key)
			e := model.Errorf(model.BadResponse, "panic: %s", t.reportPanic(p))
			result, err, failed = Result{}, nil, &modelcall.Try{Err: e, Counts: true, Again: true, Wait: time.Second}
			t.panicked = true
		}
	}()
	t.panicked = false
	result, failed, err = t.rounds(work)
	// What the end of the work caused is the end, whatever it looked like.
	if work.Err() != nil && (err != nil || failed != nil) {
		return result, nil, context.Cause(work)
	}
	return result, failed, err
}

// left is what is left of the time of the turn.
func (t *turn) left() time.Duration {
	return maxTime(t.begun.GetConfig()) - (time.Since(t.started) - t.waited)
}

// stopped turns the end of a turn's work into its fate, where it is one.
func (t *turn) stopped(ctx context.Context, cause error) (Result, error) {
	switch {
	case errors.Is(cause, errTimeout):
		return t.die(ctx, "timeout", fmt.Sprintf("the turn took longer than %s", maxTime(t.begun.GetConfig())), &registrypb.FailedTry{})
	case errors.Is(cause, ErrAborted):
		return t.aborted(ctx)
	case registrycall.Refused(cause):
		return t.die(ctx, classInternal, refusal(cause), &registrypb.FailedTry{})
	}
	return Result{}, cause
}

// Classes of attempts that no model failed.
const (
	classInternal = "internal"
	classPanic    = "panic"
)

// refusal says what the registry, or the layer that carries the calls, did not take.
func refusal(cause error) string {
	f := fault.From(cause)
	return fmt.Sprintf("the journal refused what the turn wrote (%s): %s", f.Code, f.What)
}

// givenBack is the error of a turn that is given back. What passes costs the message no
// try, what has no explanation does, so that it ends; neither is a crash. tries are those that were counted before.
func givenBack(class string, err error, tries int) error {
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrYield) || errors.Is(err, ErrStale) {
		return err
	}
	counted := true
	if f := fault.From(err); class != classPanic && !registrycall.Refused(err) && f.Code != codes.Internal {
		counted = false
	}
	return &GivenBack{
		Attempt: &registrypb.FailedTry{Class: class, Error: step.ErrorText(fault.From(err).What), Counted: counted, N: int32(tries + 1)}, Err: err,
	}
}
