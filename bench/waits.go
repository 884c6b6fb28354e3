package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/internal/pause"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const (
	waitsOfAgent = 20 // as many as an agent may have
	question     = `call: ask_user {"question":"Which account?","options":["main","savings"]}`
)

// waits measures calls that wait for a person: what they hold, and how soon they wait again after
// all services were killed.
func (r *run) waits(ctx context.Context) (err error) {
	n := r.size(1000, 100)
	s, err := server.Start(ctx, r.agentd, filepath.Join(r.dir, "waits"), server.WithMetrics)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	var agents []string
	for i := range n / waitsOfAgent {
		id := fmt.Sprintf("waits-%02d", i)
		if err := s.AgentWith(ctx, id, "offline", [2]string{"outbound", "[]"}, [2]string{"tools.also_allow", "[ask_user]"}, [2]string{"tools.question_timeout", "1h"}); err != nil {
			return err
		}
		// What a conversation costs without a call that waits is no part of the figure.
		if _, err := load.Run(ctx, s.Conn, load.Plan{Agent: id, Conversations: waitsOfAgent, Messages: 1}, "w"); err != nil {
			return err
		}
		agents = append(agents, id)
	}
	before, err := measureAtRest(ctx, s)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := ask(ctx, s, agents); err != nil {
		return err
	}
	name := fmt.Sprintf("%d calls that wait for an answer: ", n)
	r.Figure(name+"time until all wait", time.Since(began).Round(time.Millisecond).String())
	rest, err := measureAtRest(ctx, s)
	if err != nil {
		return err
	}
	r.Below(name+"goroutines of each", (rest.routines-before.routines)/float64(n), 3)
	r.Below(fmt.Sprintf("%sMB more, without pages of the program (%.1f with them)", name, rest.rss-before.rss), rest.anonymous-before.anonymous, 40)
	if err := s.Kill(); err != nil {
		return err
	}
	if s, err = server.Start(ctx, r.agentd, s.Home, server.WithMetrics); err != nil {
		return err
	}
	began = time.Now()
	if err := s.Reach(ctx, waiting, float64(n)); err != nil {
		return err
	}
	r.AtMost(name+"kill -9 of all services, start to all wait again", s.Ready+time.Since(began), 10*time.Second)
	return r.answered(ctx, s, name, agents)
}

// waiting is the metric of calls that wait for a person.
const waiting = `theclaw_runner_waits{kind="question"}`

// ask has each agent ask in each of its conversations, and waits until all of them wait.
func ask(ctx context.Context, s *server.Server, agents []string) error {
	conn, err := server.Dial(s.Home, "runner")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	runner := runnerv1.NewRunnerServiceClient(conn)
	for _, id := range agents {
		for i := range waitsOfAgent {
			if _, err := runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: id, Source: benchSource(fmt.Sprint("w", i)), Text: question}); err != nil {
				return fmt.Errorf("start run: %w", err)
			}
		}
	}
	return s.Reach(ctx, waiting, float64(len(agents)*waitsOfAgent))
}

// answered answers everything that is asked, and checks that each turn ends with its answer.
func (r *run) answered(ctx context.Context, s *server.Server, name string, agents []string) error {
	began := time.Now()
	questions := registryv1.NewQuestionServiceClient(s.Conn)
	turns := registryv1.NewTurnServiceClient(s.Conn)
	var g errgroup.Group
	g.SetLimit(8)
	for _, id := range agents {
		g.Go(func() error {
			list, err := questions.ListQuestions(ctx, &registryv1.ListQuestionsRequest{AgentId: id, State: registryv1.QuestionState_QUESTION_STATE_PENDING})
			if err != nil {
				return fmt.Errorf("list questions: %w", err)
			}
			if len(list.GetQuestions()) != waitsOfAgent {
				return fmt.Errorf("%s: %d questions wait after the restart, not %d", id, len(list.GetQuestions()), waitsOfAgent)
			}
			for _, q := range list.GetQuestions() {
				if _, err := questions.AnswerQuestion(ctx, &registryv1.AnswerQuestionRequest{QuestionId: q.GetQuestionId(), Answer: "savings"}); err != nil {
					return fmt.Errorf("answer question: %w", err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := s.Reach(ctx, waiting, 0); err != nil {
		return err
	}
	for _, id := range agents {
		if err := settled(ctx, turns, id); err != nil {
			return err
		}
	}
	r.Figure(name+"time until all are answered", time.Since(began).Round(time.Millisecond).String())
	return nil
}

// settled waits until the turns of an agent are done.
func settled(ctx context.Context, turns registryv1.TurnServiceClient, id string) error {
	for {
		list, err := turns.ListTurns(ctx, &registryv1.ListTurnsRequest{AgentId: id, PageSize: 1000})
		if err != nil {
			return fmt.Errorf("list turns: %w", err)
		}
		done := 0
		for _, t := range list.GetTurns() {
			if t.GetState() == registryv1.TurnState_TURN_STATE_DONE {
				done++
			}
		}
		if done == 2*waitsOfAgent {
			return nil
		}
		if err := pause.For(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("%s: %d of %d turns are done: %w", id, done, 2*waitsOfAgent, err)
		}
	}
}

// aborts measures how soon the processes of a tool are gone after its run was aborted, which is
// what /stop does.
func (r *run) aborts(ctx context.Context) (err error) {
	s, err := server.Start(ctx, r.agentd, filepath.Join(r.dir, "aborts"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.Agent(ctx, "aborts"); err != nil {
		return err
	}
	conn, err := server.Dial(s.Home, "runner")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	runner := runnerv1.NewRunnerServiceClient(conn)
	var took []time.Duration
	for i := range r.size(20, 5) {
		// The number of seconds is what the process is recognized by.
		mark := fmt.Sprint(86400 + i)
		one, err := runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: "aborts", Source: benchSource("a"), Text: "run: sleep " + mark})
		if err != nil {
			return fmt.Errorf("start run: %w", err)
		}
		if err := until(ctx, func() bool { return len(server.Programs("sleep", mark)) > 0 }); err != nil {
			return fmt.Errorf("the command does not run: %w", err)
		}
		began := time.Now()
		if _, err := runner.AbortRun(ctx, &runnerv1.AbortRunRequest{AgentId: "aborts", RunId: one.GetRunId()}); err != nil {
			return fmt.Errorf("abort run: %w", err)
		}
		if err := until(ctx, func() bool { return len(server.Programs("sleep", mark)) == 0 }); err != nil {
			return fmt.Errorf("the command does not end: %w", err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	r.AtMost(fmt.Sprintf("abort of a run -> processes of its tool gone, longest of %d", len(took)), took[len(took)-1], time.Second)
	return nil
}

// until waits until there is what is looked for, for at most ten seconds.
func until(ctx context.Context, there func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !there() {
		if err := pause.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
