package turn

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/step"
)

// reply ends the turn with the model's last word (T7); row is its journal row,
// which goes with it when it is not written yet.
func (t *turn) reply(ctx context.Context, a step.Answer, row *registrypb.Step) (Result, error) {
	in := &registrypb.FinishTurnRequest{Fate: registrypb.Fate_FATE_REPLIED, Text: t.steps.Reply(a)}
	if strings.TrimSpace(in.GetText()) == "" {
		in.Fate, in.Text = registrypb.Fate_FATE_SILENT, ""
	} else {
		in.Before = t.steps.Before(a, t.begun.GetConfig().GetParts())
	}
	if known := t.steps.Answer(row.GetKey()); known == nil || known.GetState() == registrypb.StepState_STEP_STATE_INTENT {
		in.Steps = append(in.Steps, row)
	}
	if !step.OfProgram(row) { // a program has written its session itself
		t.last.messages = append(t.last.messages, a.Message())
	}
	return t.end(ctx, in)
}

// die ends the turn as a dead letter (T9). It is also called when the turn's
// work is over, so ctx is the lease's. last is the attempt that ends it, when the journal
// does not have it: what is set in it is kept.
func (t *turn) die(ctx context.Context, class, why string, last *registrypb.FailedTry) (Result, error) {
	why = step.ErrorText(why)
	if last != nil {
		last.Class, last.Error = step.Clip(class, 64), why
	}
	in := &registrypb.FinishTurnRequest{
		Fate: registrypb.Fate_FATE_DEAD, Error: step.ErrorText(store.Failure(class, why)), Steps: t.unwritten, FailedTry: last,
		Class: step.Clip(class, 64), Refused: t.refused,
	}
	if t.begun.GetConfig().GetNotifyPeer() {
		in.Text = thread.Apology
	}
	r, err := t.end(ctx, in)
	if err == nil {
		t.w.Dead(t.w.Key)
	}
	return r, err
}

// aborted ends the turn because a person wants it; what was said so far is kept
// (S1-16).
func (t *turn) aborted(ctx context.Context) (Result, error) {
	why := cmp.Or(context.Cause(t.w.Abort), ErrAborted).Error()
	if said := t.out.Partial(); said != "" {
		why += "; said so far: " + said
	}
	return t.end(ctx, &registrypb.FinishTurnRequest{Fate: registrypb.Fate_FATE_ABORTED, Error: step.ErrorText(why), Steps: t.unwritten})
}

func (t *turn) end(ctx context.Context, in *registrypb.FinishTurnRequest) (Result, error) {
	level, fate := "INFO", strings.ToLower(strings.TrimPrefix(in.GetFate().String(), "FATE_"))
	if in.GetFate() == registrypb.Fate_FATE_DEAD {
		level = "ERROR"
	}
	t.logf(level, "result: inbox event %d %s after %d ms%s", t.w.InboxID, fate, time.Since(t.started).Milliseconds(), tail(in.GetError()))
	t.reserveDigest(in.GetFate())
	r, err := t.finish(ctx, in)
	if registrycall.Refused(err) && in.GetFate() == registrypb.Fate_FATE_DEAD {
		// What goes with the end is what cannot be taken: the end alone is short and valid.
		t.logs, t.unwritten, in.Steps = nil, nil, nil
		r, err = t.finish(ctx, in)
	}
	if err != nil {
		return Result{}, err
	}
	switch r.GetFate() { // the one that stands, which may be an earlier one
	case registrypb.Fate_FATE_DEAD, registrypb.Fate_FATE_ABORTED:
		t.out.End(cmp.Or(in.GetError(), "the run had ended before"))
	default:
		t.out.End("")
		t.digestUpto(max(r.GetReplyEventId(), t.begun.GetInbound().GetId()))
	}
	if dir := t.begun.GetConfig().GetSessionsDir(); dir != "" && len(t.last.messages) > 0 {
		t.Sessions.Write(dir, t.w.ThreadID, t.last.system, t.last.messages, func(err error) {
			t.Logger.WarnContext(ctx, "session file not written", "agent_id", t.w.AgentID, "thread_id", t.w.ThreadID, "error", err)
		})
	}
	return Result{Fate: r.GetFate(), Acked: r.GetLastAckedId()}, nil
}

func tail(why string) string {
	if why == "" {
		return ""
	}
	return ": " + step.Clip(why, 512)
}

// failed accounts for a try without an answer. done means that the event has
// its fate; else the wait is over and the next try may begin.
func (t *turn) failed(ctx context.Context, f *modelcall.Try) (result Result, done bool, err error) {
	class, why := f.Err.Class.String(), strings.TrimPrefix(f.Err.Error(), "model: ")
	if t.panicked {
		class = classPanic
	}
	if !f.Again {
		// No other configured model can answer in its place yet; here one would be asked.
		t.refused = f.Err.RefusesContent()
		result, err = t.die(ctx, class, why, &registrypb.FailedTry{})
		return result, true, err
	}
	now := time.Now()
	switch {
	case f.Counts:
		t.down, t.away = time.Time{}, 0
	case t.down.IsZero():
		t.down = now
	}
	if !f.Held {
		t.Meter.AddRetry(class)
		t.logf("WARN", "model: try failed (%s), next in %d ms: %s", class, f.Wait.Milliseconds(), step.Clip(why, 512))
		if !f.Counts {
			t.away++
		}
	}
	attempts, err := t.record(ctx, &registrypb.FailedTry{
		Class: step.Clip(class, 64), Error: step.ErrorText(why), Wait: durationpb.New(f.Wait), Counted: f.Counts, Tries: int32(f.Err.Tries), Held: f.Held, N: int32(t.tries + 1),
	}, nil, t.unwritten...)
	if err != nil {
		return Result{}, false, err
	}
	t.unwritten = nil
	t.tries = max(attempts, t.tries)
	switch {
	case f.Counts && t.tries >= maxTries(t.begun.GetConfig()):
		result, err = t.die(ctx, class, fmt.Sprintf("%s (tried %d times)", why, t.tries), nil)
		return result, true, err
	case !f.Counts && now.Sub(t.down)+f.Wait > maxAge(t.begun.GetConfig()):
		result, err = t.die(ctx, class, fmt.Sprintf("%s (waited %s)", why, now.Sub(t.down).Round(time.Second)), nil)
		return result, true, err
	}
	start := time.Now()
	err = t.pause(ctx, f.Wait, f.Back)
	if !f.Counts {
		t.waited += time.Since(start)
	}
	return Result{}, false, err
}

// pause waits for the next try without a slot, until back is closed at most. A person may
// end it, which is then the cause answered.
func (t *turn) pause(ctx context.Context, d time.Duration, back <-chan struct{}) error {
	return t.untilAborted(ctx, func(ctx context.Context) error { return t.w.Slot.Pause(ctx, d, back) })
}

// untilAborted calls wait with a context that also ends when a person ends the turn.
func (t *turn) untilAborted(ctx context.Context, wait func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.w.Abort, func() { cancel(context.Cause(t.w.Abort)) })()
	return wait(ctx)
}
