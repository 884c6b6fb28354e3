// Package loop asks a model and makes the calls of tools in its answers, round by round,
// until it answers without one.
//
//	         Ask                    Plan, Use
//	round i ----> answer, no calls ----> end
//	   ^              |
//	   |              +-- calls: journal the answer with all intents, in one write
//	   |                         (T3, T4), then make them and journal the results (T6)
//	   +-------------------------+
//
// A step with a result in the journal is not done again: an answer is replayed, a finished
// call is not made. Calls of one answer are made in their order, and the model reads their
// results in that order. Only calls that change nothing run together, so that of the others
// at most the first call without a result can have begun.
//
// It depends on steps, a model and tools, and on no inbox events, leases or replies.
//
// It is a package of its own because the planner and sub-agents work in the same rounds:
// each brings its own Steps and Model.
package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// MaxRounds bounds the answers of one loop (S0-106).
const MaxRounds = 100

// MaxRefused bounds the answers in a row that hold nothing but calls that cannot be made
// ([model.ToolCall].Problem): the model does not learn from their results.
const MaxRefused = 5

// ErrRounds means that the model called tools in each of MaxRounds rounds, or calls that
// cannot be made in MaxRefused of them. The error that wraps it says which.
var ErrRounds = errors.New("no answer")

// Steps is the journal of the work.
type Steps interface {
	toolset.Journal
	// Answer is the step of an answer; nil: there is none.
	Answer(key string) *registrypb.Step
	// Open are the calls that have no result, in their order.
	Open() []*registrypb.Step
}

// Model is the model that is asked.
type Model interface {
	// Ask makes one try of a round's call: the answer and its step, which is not in the
	// journal yet, or a failed try. said is all that was said and done since the beginning.
	Ask(ctx context.Context, round int, said []model.Message) (step.Answer, *registrypb.Step, *modelcall.Try, error)
	// Journaled is called when an answer with calls is in the journal.
	Journaled()
}

// Loop is one piece of work. All fields but Merge are required.
type Loop struct {
	Steps Steps
	Model Model
	Calls *toolset.Calls
	// Merge returns the messages that are merged into the work before a round's call, which
	// is still to be made when open is true.
	Merge func(ctx context.Context, round int, open bool) ([]model.Message, error)
}

// Run works until the model answers without a call, and returns that answer with its step,
// which is not in the journal yet unless it was replayed. failed is a try of the model that
// gave no answer; Run may be called again after it. said is what was said and done before.
func (l *Loop) Run(ctx context.Context, said []model.Message) (a step.Answer, row *registrypb.Step, failed *modelcall.Try, err error) {
	// The one call that may have begun, has no result and must not be repeated blindly is
	// the first intent: such a call begins after all before it ended. Reads behind it may
	// have begun too, and run again.
	begun := ""
	if open := l.Steps.Open(); len(open) > 0 {
		begun = open[0].GetKey()
	}
	refused := 0 // answers in a row
	for round := 1; round <= MaxRounds; round++ {
		row = l.Steps.Answer(step.ModelKey(round))
		if l.Merge != nil {
			merged, err := l.Merge(ctx, round, row == nil)
			if err != nil {
				return step.Answer{}, nil, nil, err
			}
			said = append(said, merged...)
		}
		if row != nil {
			if a, err = step.Decode(row.GetResult()); err != nil {
				return step.Answer{}, nil, nil, err
			}
		} else {
			if a, row, failed, err = l.Model.Ask(ctx, round, said); failed != nil || err != nil {
				return step.Answer{}, nil, failed, err
			}
			for _, note := range a.Notes {
				l.Calls.Logf("WARN", "model: %s: %s", row.GetKey(), note)
			}
			if len(a.ToolCalls) > 0 {
				if err := l.plan(ctx, round, a, row); err != nil {
					return step.Answer{}, nil, nil, err
				}
			}
		}
		m := a.Message()
		said = append(said, m)
		if len(m.ToolCalls) == 0 {
			return a, row, nil, nil
		}
		results, err := l.Calls.Use(ctx, toolKey(round), m.ToolCalls, begun)
		if err != nil {
			return step.Answer{}, nil, nil, err
		}
		for n, c := range m.ToolCalls {
			said = append(said, model.Message{Role: model.RoleTool, ToolCallID: c.ID, Name: c.Name, Text: results[n], Images: toolset.Images(results[n])})
		}
		if refused++; slices.ContainsFunc(m.ToolCalls, func(c model.ToolCall) bool { return c.Problem == "" }) {
			refused = 0
		}
		if refused == MaxRefused {
			return step.Answer{}, nil, nil, fmt.Errorf("%w: the model made calls that cannot be understood in %d rounds in a row, the last: %s",
				ErrRounds, MaxRefused, m.ToolCalls[0].Problem)
		}
	}
	return step.Answer{}, nil, nil, fmt.Errorf("%w: the model called tools in %d rounds without an answer", ErrRounds, MaxRounds)
}

// plan journals an answer together with all its intents, in one write (T3, T4).
func (l *Loop) plan(ctx context.Context, round int, a step.Answer, row *registrypb.Step) error {
	steps := append([]*registrypb.Step{row}, l.Calls.Intents(toolKey(round), a.Message().ToolCalls)...)
	if err := l.Steps.Write(ctx, a.Sayings(row.GetKey()), steps...); err != nil {
		return err
	}
	l.Model.Journaled()
	return nil
}

// toolKey returns the keys of the calls of a round.
func toolKey(round int) func(n int) string {
	return func(n int) string { return step.ToolKey(round, n) }
}
