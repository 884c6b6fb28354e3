package turn

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// waits lets a call of the turn wait for a person.
type waits struct{ t *turn }

var _ toolset.Waits = waits{}

// Wait implements [toolset.Waits].
func (w waits) Wait(ctx context.Context, f func(context.Context) error) error {
	t := w.t
	if !t.clock.Stop() {
		<-ctx.Done() // the time of the turn is over
		return context.Cause(ctx)
	}
	begun := time.Now()
	err := t.waiting(ctx)
	if err == nil {
		err = t.w.Slot.Wait(ctx, f)
	}
	t.waited += time.Since(begun)
	if errors.Is(err, ErrYield) {
		t.yield(ErrYield) // nothing of the call is kept
		return err
	}
	t.clock.Reset(t.left())
	return err
}

// Say implements [toolset.Waits].
func (w waits) Say(ctx context.Context, c toolset.Call, name, text, question string) error {
	_, err := w.t.record(ctx, nil, []*registrypb.Saying{{StepKey: w.step(c) + ":" + name, Text: text, QuestionId: question}})
	return err
}

// Replies implements [toolset.Waits].
func (w waits) Replies(after int64) (list []toolset.Reply, changed <-chan struct{}) {
	events, changed := w.t.w.Slot.Behind(after)
	for _, e := range events {
		list = append(list, toolset.Reply{ID: e.GetEvent().GetId(), Key: e.GetKey(), Text: prompt.Text(e.GetEvent().GetContent())})
	}
	return list, changed
}

// Hold implements [toolset.Waits].
func (w waits) Hold(r toolset.Reply) bool { return w.t.w.Slot.Hold(r.Key, true) }

// Release implements [toolset.Waits].
func (w waits) Release(r toolset.Reply) { w.t.w.Slot.Hold(r.Key, false) }

// Join implements [toolset.Waits]. The step is none that a round shows to the model, which reads
// the answer in the result of the call.
func (w waits) Join(ctx context.Context, c toolset.Call, key string) error {
	member := step.SteerOfCall(w.step(c))
	if w.t.steps.Steer(member) != nil {
		return nil
	}
	id, _ := thread.KeyID(key)
	_, err := w.t.steer(ctx, member, []*registrypb.Member{{InboxId: id, Key: key}})
	return err
}

// goesOnWaiting reports whether the first open step of a turn that is claimed again is a call that waits for a person.
func goesOnWaiting(steps []*registrypb.Step) bool {
	for _, s := range steps {
		if s.GetKind() == registrypb.StepKind_STEP_KIND_TOOL && s.GetState() == registrypb.StepState_STEP_STATE_INTENT {
			return s.GetNotBegun()
		}
	}
	return false
}

// step is the key of the step of a call.
func (w waits) step(c toolset.Call) string { return strings.TrimPrefix(c.Key, w.t.w.Key+":") }
