package turn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/loop"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/silence"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// errInDoubt ends the rounds because a call of a program was interrupted.
var errInDoubt = errors.New("a program was interrupted")

// rounds asks the model and runs its tools until it answers with text alone.
// What the journal has is replayed. failed is a try of the model that gave no
// answer.
func (t *turn) rounds(ctx context.Context) (result Result, failed *modelcall.Try, err error) {
	if len(t.steps.Interrupted()) > 0 {
		result, err = t.inDoubt(ctx)
		return result, nil, err
	}
	if err := t.placeUnread(ctx); err != nil {
		return Result{}, nil, err
	}
	l := loop.Loop{Steps: t.steps, Model: roundModel{t}, Calls: t.calls(), Merge: t.merged}
	a, row, failed, err := l.Run(ctx, t.steps.Messages(true))
	switch {
	case errors.Is(err, loop.ErrRounds):
		result, err = t.die(ctx, "tool loop", err.Error(), &registrypb.FailedTry{})
	case errors.Is(err, errInDoubt):
		result, err = t.inDoubt(ctx)
	case err == nil && failed == nil:
		result, err = t.reply(ctx, a, row)
	}
	return result, failed, err
}

// calls makes the calls of this turn.
func (t *turn) calls() *toolset.Calls {
	c := &toolset.Calls{
		Set: t.tools, Key: t.w.Key, Journal: t.steps, Watcher: t.out, Meter: t.Meter, Trace: t.Trace, Logf: t.logf, Media: t.Media, Panicked: t.reportPanic,
		Place: t.place(),
	}
	c.Place.Waits, c.Place.Status = waits{t}, t.report
	if len(t.begun.GetConfig().GetAccounts()) > 0 {
		c.Place.CheckSaying = t.checkSaying
	}
	return c
}

// place is where programs of this turn run.
func (t *turn) place() toolset.Place {
	return toolset.Place{
		AgentID: t.w.AgentID, ThreadID: t.w.ThreadID, Turn: t.w.Key, InboxID: t.w.InboxID, Fence: t.w.Fence, Config: t.begun.GetConfig(), Trusted: t.trusted,
	}
}

// merged are the messages that are merged before a round's call: those that the
// journal has, or those that wait now, when the call is still to be made.
func (t *turn) merged(ctx context.Context, round int, open bool) ([]model.Message, error) {
	row := t.steps.Steer(step.SteerKey(round))
	if row == nil && open && round > 1 {
		if members := t.w.Slot.Steer(); len(members) > 0 {
			var err error
			if row, err = t.steer(ctx, step.SteerKey(round), members); err != nil {
				return nil, err
			}
		}
	}
	list, err := step.Steered(row)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if err := t.placeFiles(ctx, e.Source, e.Content); err != nil {
			return nil, err
		}
		if err := t.transcribeFiles(ctx, e.ID, e.Source, e.Content); err != nil {
			return nil, err
		}
	}
	if len(list) > 0 {
		transcripts := memory.TranscriptsOf(t.begun.GetTail())
		for i := range list {
			list[i].Transcripts = transcripts[list[i].ID]
		}
	}
	return prompt.Messages(list), nil
}

// roundModel is the model that answers the rounds of a turn.
type roundModel struct{ *turn }

// Journaled implements [loop.Model].
func (t roundModel) Journaled() { t.out.to.Settle() }

// Ask implements [loop.Model]. A program that runs tools itself gives the last answer.
func (t roundModel) Ask(ctx context.Context, round int, said []model.Message) (step.Answer, *registrypb.Step, *modelcall.Try, error) {
	if failed := t.find(); failed != nil {
		return step.Answer{}, nil, failed, nil
	}
	if t.model.Program != nil {
		return t.program(ctx)
	}
	return t.ask(ctx, round, said)
}

// find finds the agent's model, once in a turn.
func (t *turn) find() *modelcall.Try {
	if t.found {
		return nil
	}
	m, err := t.Models.Find(t.begun.GetConfig().GetProvider(), t.begun.GetConfig().GetModel())
	if err != nil {
		e := model.AsError(err)
		return &modelcall.Try{Err: e, Counts: e.CountsTry(), Again: e.Recoverable()}
	}
	if wait := m.ForPeers(t.begun.GetInbound().GetSource()); wait != nil {
		return wait
	}
	t.model, t.found = m, true
	t.requests = t.newRequests()
	return nil
}

// ask makes one try of a model call (T3). A good answer is not journaled yet.
func (t *turn) ask(ctx context.Context, round int, said []model.Message) (step.Answer, *registrypb.Step, *modelcall.Try, error) {
	written, n := t.steps.Blocks(round)
	blocks := t.newBlocks(round, n, written)
	req, resp, try, err := t.call(ctx, append(slices.Clip(said), writtenBefore(written)...), written, blocks)
	if err != nil {
		return step.Answer{}, nil, nil, err
	}
	if try.Err != nil {
		return step.Answer{}, nil, &try, nil
	}
	t.Meter.ObserveStep("model", resp.Duration)
	t.model.Count(t.Meter, req.Model, resp.Usage)
	t.logf("INFO", "model: %s/%s %d ms, %d tokens in, %d out, %d tool calls", t.model.Provider, req.Model,
		resp.Duration.Milliseconds(), resp.Usage.Input, resp.Usage.Output, len(resp.ToolCalls))
	if len(resp.ToolCalls) == 0 && strings.TrimSpace(resp.Text) == "" && written == "" {
		if resp.Text = t.steps.Fallback(); resp.Text == "" && len(t.steps.Sent()) == 0 {
			return step.Answer{}, nil, t.bad(model.NoText(resp)), nil
		}
		t.out.Delta(model.Delta{Text: resp.Text})
	}
	at, mode, reach := t.out.EndAnswer(), t.begun.GetConfig().GetReplyBreak(), len(written)
	if written != "" {
		resp.Text = written + silence.Text(resp.Text)
	}
	var says []*registrypb.Saying
	var rows []*registrypb.Step
	if blocks != nil {
		mode = step.BreakText // what follows is sent while it is written, so this cannot wait for it
		if says, rows, reach = blocks.remaining(); reach > 0 {
			resp.Text = blocks.text.Text() // as it was shown and sent
		}
	}
	a, result, tooLarge := step.NewAnswerWithBreak(resp, at, mode, reach)
	if tooLarge != nil {
		return step.Answer{}, nil, t.bad(tooLarge), nil
	}
	row := step.Model(t.steps.NextSeq(), round, t.model.Provider, req, resp, result)
	if err := t.writeBlocks(ctx, says, rows, a, row); err != nil {
		return step.Answer{}, nil, nil, err
	}
	return a, row, nil, nil
}

// call asks the model. A prompt that the provider finds too long is made smaller
// and asked again, which is the same try. The answer begins with written.
func (t *turn) call(ctx context.Context, said []model.Message, written string, blocks *blocks) (req model.Request, resp model.Response, try modelcall.Try, err error) {
	said = t.shown(said)
	if err := t.requests.Fit(ctx, said); err != nil {
		return req, resp, try, err
	}
	for {
		var p prompt.Prompt
		req, p = t.requests.Request(said)
		req.Try, req.Away = t.tries+t.away+1, t.away
		req.Thinking = modelcall.Thinking(t.begun.GetInbound().GetSource(), t.begun.GetInbound().GetContent(), t.begun.GetConfig().GetThinking())
		t.last = transcript{p.System, p.Messages[:len(p.Messages)-len(writtenBefore(written))]} // the answer has it
		t.sent = sent{len(p.Messages), p.Tokens}
		if req.Messages, err = t.load(ctx, t.shown(req.Messages)); err != nil {
			return req, resp, try, err
		}
		if err := t.trusted(ctx); err != nil {
			return req, resp, try, err
		}
		t.out.Call(written, blocks)
		fault.Point("T3.before")
		begun := time.Now()
		if blocks == nil {
			resp, try = t.model.Try(ctx, req, t.out.Delta)
		} else if resp, try, err = blocks.call(ctx, req); err != nil {
			return req, resp, try, err
		}
		fault.Point("T3.after")
		t.called(begun, try)
		if try.Err == nil || try.Err.Class != model.ContextTooLong {
			return req, resp, try, nil
		}
		again, err := t.requests.Squeeze(ctx, said, p)
		if err != nil || !again {
			return req, resp, try, err
		}
	}
}

// called accounts for a call: an answer ends an outage, and the time in which an unavailable
// provider gave none is no time of the turn.
func (t *turn) called(begun time.Time, try modelcall.Try) {
	switch {
	case try.Err == nil:
		t.down, t.away = time.Time{}, 0
	case !try.Counts && try.Again:
		t.waited += time.Since(begun)
	}
}

// emptyWait is between the tries of a model that answers nothing or what cannot be used.
var emptyWait = pause.Backoff{First: time.Second, Last: 4 * time.Second}

// bad is a try whose answer cannot be used.
func (t *turn) bad(e *model.Error) *modelcall.Try {
	return &modelcall.Try{Err: e, Counts: true, Again: e.Recoverable(), Wait: emptyWait.Wait(t.tries)}
}
