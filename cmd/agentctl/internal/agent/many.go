package agent

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
)

// atOnce is how many agents are worked on at the same time: what they write then comes
// to disk together.
const atOnce = 64

// answer of a command about one agent: data for programs and text for people.
type answer struct {
	data any
	text string
}

// refusal is what a program is told of one agent among many that failed.
type refusal struct {
	AgentID    string `json:"agent_id"`
	Error      string `json:"error"`
	Suggestion string `json:"suggestion"`
}

// each does the same for agents and tells of each in the order given. One that fails
// stops no other; about one agent alone the answer and the error are as ever.
func each(ctx context.Context, e *command.Env, ids []string, do func(ctx context.Context, id string) (answer, error)) error {
	if len(ids) == 1 {
		a, err := do(ctx, ids[0])
		if err != nil {
			return err
		}
		if e.Flags.JSON {
			return e.PrintJSON(a.data)
		}
		_, err = fmt.Fprint(e.Out, a.text)
		return err
	}
	answers, failed := make([]answer, len(ids)), make([]error, len(ids))
	step, done := screen.Progress(e, len(ids), "working")
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, id := range ids {
		g.Go(func() error {
			defer step()
			if answers[i], failed[i] = do(ctx, id); command.Unavailable(failed[i]) || ctx.Err() != nil {
				return failed[i]
			}
			return nil
		})
	}
	err := g.Wait()
	done()
	if err != nil {
		return err
	}
	return report(e, ids, answers, failed)
}

func report(e *command.Env, ids []string, answers []answer, failed []error) error {
	var said error
	if errors.Join(failed...) != nil {
		said = &command.ReportedError{}
	}
	all := []any{}
	for i, err := range failed {
		switch {
		case e.Flags.JSON && err != nil:
			f := fault.From(err)
			all = append(all, refusal{ids[i], f.What, f.Fix})
		case e.Flags.JSON:
			all = append(all, answers[i].data)
		case err != nil:
			fmt.Fprintln(e.Err, fault.Line(err))
		default:
			fmt.Fprint(e.Out, answers[i].text)
		}
	}
	if e.Flags.JSON {
		return errors.Join(e.PrintJSON(all), said)
	}
	return said
}

// chosen are the agents of a command line: those named, or with --all those there are
// that are not yet as they are to be.
func chosen(ctx context.Context, e *command.Env, named []string, started bool) ([]string, error) {
	if len(named) > 0 {
		return named, nil
	}
	agents, err := e.AllAgents(ctx)
	var ids []string
	for _, a := range agents {
		if a.GetStarted() != started {
			ids = append(ids, a.GetAgentId())
		}
	}
	return ids, err
}
