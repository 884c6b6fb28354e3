package turn

import (
	"context"
	"fmt"
	"strings"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/answer"
	"github.com/theclaw/agents/services/runner/internal/journal"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/step"
)

// rounds asks the model and runs its tools until it answers with text alone.
// What the journal has is replayed. failed is a try of the model that gave no
// answer.
func (t *turn) rounds(ctx context.Context) (result Result, failed *Try, err error) {
	if len(t.book.CutOff()) > 0 {
		result, err = t.inDoubt(ctx)
		return result, nil, err
	}
	// The one tool step that may have begun and has no result: the first intent,
	// since a tool begins after the one before it ended.
	begunBefore := ""
	if open := t.book.Open(); len(open) > 0 {
		begunBefore = open[0].GetKey()
	}
	said := t.book.Ran(true)
	for round := 1; round <= MaxRounds; round++ {
		row := t.book.Answer(step.ModelKey(round))
		if said, err = t.joined(ctx, round, said, row == nil); err != nil {
			return Result{}, nil, err
		}
		var a step.Answer
		if row != nil {
			if a, err = step.Decode(row.GetResult()); err != nil {
				return Result{}, nil, err
			}
		} else {
			if failed = t.find(); failed != nil {
				return Result{}, failed, nil
			}
			if t.model.Program != nil {
				return t.program(ctx)
			}
			if a, row, failed, err = t.ask(ctx, round, said); failed != nil || err != nil {
				return Result{}, failed, err
			}
			if len(a.ToolCalls) > 0 {
				if err := t.plan(ctx, round, a, row); err != nil {
					return Result{}, nil, err
				}
			}
		}
		said = append(said, a.Message())
		if len(a.ToolCalls) == 0 {
			result, err := t.reply(ctx, a, row)
			return result, nil, err
		}
		for n, c := range a.ToolCalls {
			text, err := t.use(ctx, round, n+1, c, begunBefore)
			if err != nil {
				return Result{}, nil, err
			}
			said = append(said, model.Message{Role: model.RoleTool, ToolCallID: c.ID, Name: c.Name, Text: text})
		}
	}
	result, err = t.die(ctx, "tool loop", fmt.Sprintf("the model called tools in %d rounds without an answer", MaxRounds))
	return result, nil, err
}

// find finds the agent's model, once in a turn.
func (t *turn) find() *Try {
	if t.found {
		return nil
	}
	m, err := t.Models.Find(t.begun.GetConfig().GetProvider(), t.begun.GetConfig().GetModel())
	if err != nil {
		e := model.AsError(err)
		return &Try{Err: e, Counts: e.CountsTry(), Again: e.Recoverable()}
	}
	t.model, t.found = m, true
	t.fit = t.fitted()
	return nil
}

// ask makes one try of a model call (T3). A good answer is not journalled yet.
func (t *turn) ask(ctx context.Context, round int, said []model.Message) (step.Answer, *registrypb.Step, *Try, error) {
	req, resp, try, err := t.call(ctx, said)
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
	if len(resp.ToolCalls) == 0 && strings.TrimSpace(resp.Text) == "" {
		if resp.Text = t.book.Fallback(); resp.Text == "" && len(t.book.Sent()) == 0 {
			return step.Answer{}, nil, bad(model.Errorf(model.BadResponse, "the model answered nothing")), nil
		}
		t.voice.Delta(model.Delta{Text: resp.Text})
	}
	a, result, tooLarge := step.NewBroken(resp, t.voice.Answered(), t.begun.GetConfig().GetReplyBreak())
	if tooLarge != nil {
		return step.Answer{}, nil, bad(tooLarge), nil
	}
	return a, step.Model(t.book.NextSeq(), round, t.model.Provider, req, resp, result), nil, nil
}

// call asks the model. A prompt that the provider finds too long is made smaller
// and asked again, which is the same try.
func (t *turn) call(ctx context.Context, said []model.Message) (req model.Request, resp model.Response, try Try, err error) {
	if err := t.fit.Due(ctx, said); err != nil {
		return req, resp, try, err
	}
	for {
		var p prompt.Prompt
		req, p = t.fit.Request(said)
		req.Try, req.Thinking = t.tries+1, answer.Thinking(t.begun.GetInbound().GetSource(), t.begun.GetInbound().GetContent())
		t.last = transcript{p.System, p.Messages}
		if err := t.trusted(ctx); err != nil {
			return req, resp, try, err
		}
		t.voice.Call()
		fault.Point("T3.before")
		resp, try = t.model.Try(ctx, req, t.voice.Delta)
		fault.Point("T3.after")
		if try.Err == nil || try.Err.Class != model.ContextTooLong {
			return req, resp, try, nil
		}
		again, err := t.fit.Squeeze(ctx, said, p)
		if err != nil || !again {
			return req, resp, try, err
		}
	}
}

func bad(e *model.Error) *Try {
	return &Try{Err: e, Counts: true, Again: true, Wait: journal.FirstWait}
}
