package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
		return e.Show(a.data, ids[0], "%s", strings.TrimSuffix(a.text, "\n"))
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
	all, names := make([]any, len(ids)), []string{}
	for i, err := range failed {
		if err == nil {
			all[i], names = answers[i].data, append(names, ids[i])
			continue
		}
		said = &command.ReportedError{}
		f := fault.From(err)
		all[i] = refusal{ids[i], f.What, f.Fix}
		e.Note("%s", fault.Line(err))
	}
	return errors.Join(e.Print(all, names, func() error {
		for i, a := range answers {
			if failed[i] == nil {
				fmt.Fprint(e.Out, a.text)
			}
		}
		return nil
	}), said)
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
