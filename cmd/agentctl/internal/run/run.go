// Package run implements the commands that talk to an agent from a script, one run at a
// time: `agentctl agent` starts a run and may wait for its reply; `run` waits for one,
// streams it, or aborts it; `cancel` withdraws a message that has not been started.
//
// It promises that the id of a run outlives every process, so that each command can be
// interrupted and repeated; that standard output has the reply, or the id, and nothing
// else; and that interrupting a command never aborts a run.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Commands answers the commands of this package.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{
		agentCommand(e), cancelCommand(e),
		command.Group(e, &cobra.Command{
			Use:   "run",
			Short: "Wait for a run, stream it, or abort it",
			Example: `  agentctl run wait alice RUN
  agentctl run stream alice RUN
  agentctl run abort alice RUN`,
		}, waitCommand(e), streamCommand(e), abortCommand(e)),
	}
}

const (
	// defaultWait is how long a wait is unless --timeout is given, maxWait the
	// longest one: there a script has to ask again.
	defaultWait = 30 * time.Second
	maxWait     = 24 * time.Hour
	// slice is how long one call to the runner waits: what the run waits for is in no
	// answer before.
	slice = 2 * time.Second
	// again is the pause before a service that is away is asked again.
	again = 200 * time.Millisecond
)

// ending is the end of a run for programs, with what WaitRun answers. Of a run that failed
// it is the error, too.
type ending struct {
	RunID        string    `json:"run_id"`
	Status       string    `json:"status"` // ok, error
	Reply        string    `json:"reply"`
	StartedAt    *string   `json:"started_at"`
	EndedAt      *string   `json:"ended_at"`
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	Payloads     []payload `json:"payloads"`
	MergedInto   string    `json:"merged_into,omitempty"`
	ErrorCode    string    `json:"error_code,omitempty"`
	Error        string    `json:"error,omitempty"`
	Suggestion   string    `json:"suggestion,omitempty"`
}

// payload is a part of the end of a run.
type payload struct {
	Kind string `json:"kind"` // text, reasoning, tool, error
	Text string `json:"text"`
}

func payloads(list []*runner.Payload) []payload {
	out := []payload{}
	for _, p := range list {
		out = append(out, payload{command.Word(p.GetKind(), "PAYLOAD_KIND_", "unspecified"), p.GetText()})
	}
	return out
}

// limit is how long to wait. Who waits means the end of the run by --timeout, and not
// each call on the way to it, which keeps the time it has anyway.
func limit(c *cobra.Command, e *command.Env, waits bool) (time.Duration, error) {
	if !c.Flags().Changed("timeout") {
		return defaultWait, nil
	}
	wait := e.Flags.Timeout
	if wait > maxWait {
		return 0, command.Usage(c, "--timeout is at most %s here", maxWait)
	}
	if waits {
		e.Flags.Timeout = max(wait, command.DefaultTimeout)
	}
	return wait, nil
}

// await waits for the end of a run; a runner that is away for a moment does not
// end the wait. What the run waits for is reported, once for each cause, and in the error
// of a wait that ends before the run.
func await(ctx context.Context, e *command.Env, agent, id string, limit time.Duration) (*runner.WaitRunResponse, error) {
	deadline := time.Now().Add(limit)
	var away time.Time
	waits := watcher{env: e, agent: agent, id: id}
	for {
		left := max(time.Until(deadline), time.Millisecond)
		call, cancel := context.WithTimeout(ctx, min(left, slice)+command.DefaultTimeout)
		r, err := e.RunnerService().WaitRun(call, &runner.WaitRunRequest{AgentId: agent, RunId: id, Timeout: durationpb.New(min(left, slice))})
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case command.Unavailable(err):
			if away.IsZero() {
				away = time.Now()
			}
			if time.Since(away) > command.Patience || time.Now().After(deadline) {
				return nil, err
			}
			if err := pause.For(ctx, again); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case r.GetStatus() != runner.RunStatus_RUN_STATUS_TIMEOUT:
			return r, nil
		case !time.Now().Before(deadline):
			what := fmt.Sprintf("run %s has not ended after %s; it goes on", id, limit)
			if w := waits.look(ctx, r).String(); w != "" {
				what = fmt.Sprintf("run %s has not ended after %s; it is not lost; %s", id, limit, w)
			}
			return nil, fault.New(codes.DeadlineExceeded, fault.Deadline, what,
				fmt.Sprintf("wait on with 'agentctl run wait %s %s --timeout 5m', or end it with 'agentctl run abort %s %s'", agent, id, agent, id))
		default:
			away = time.Time{}
			waits.report(ctx, r)
		}
	}
}

// lines is standard error for a command that writes to it from two goroutines.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// watcher reports what a run waits for.
type watcher struct {
	env       *command.Env
	agent, id string
	said      string
}

// look is what a run without an end waits for.
func (w *watcher) look(ctx context.Context, r *runner.WaitRunResponse) message.Wait {
	t := &registry.Turn{AgentId: w.agent, Key: w.id, State: registry.TurnState_TURN_STATE_CLAIMED}
	if f := r.GetWaiting(); f != nil {
		t.State, t.Error, t.NextAt = registry.TurnState_TURN_STATE_WAITING, f.GetError(), f.GetNextAt()
		t.Attempts = []*registry.Attempt{{Counted: f.GetCounted()}}
		return message.WaitOf(t, nil, time.Now())
	}
	if r.GetStatus() != runner.RunStatus_RUN_STATUS_TIMEOUT {
		return message.Wait{}
	}
	// The registry knows whether another one of its conversation is before it, and what is
	// asked. The answer is an extra, so no error of it is one of the run.
	g, err := w.env.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: w.agent, Key: w.id})
	if err != nil {
		return message.Wait{}
	}
	if r.GetStartedAt() != nil {
		return message.Wait{Cause: message.Person(ctx, w.env, g.GetTurn())}
	}
	return message.WaitOf(g.GetTurn(), message.Ahead(ctx, w.env, g.GetTurn()), time.Now())
}

// report writes what a run waits for to standard error, once for each cause.
func (w *watcher) report(ctx context.Context, r *runner.WaitRunResponse) {
	if what := w.look(ctx, r); what.Cause != "" && what.Cause != w.said {
		w.said = what.Cause
		w.env.Note("%s", screen.Line(what.String()))
	}
}

// watch reports what a run waits for until it ends, or ctx does. It is an extra of a stream:
// errors of the runner are for that to report.
func (w *watcher) watch(ctx context.Context) {
	for ctx.Err() == nil {
		r, err := w.env.RunnerService().WaitRun(ctx, &runner.WaitRunRequest{AgentId: w.agent, RunId: w.id, Timeout: durationpb.New(slice)})
		switch {
		case err == nil && r.GetStatus() != runner.RunStatus_RUN_STATUS_TIMEOUT:
			return
		case err == nil:
			w.report(ctx, r)
		}
		if pause.For(ctx, again) != nil { // neither an early answer nor an error makes a busy loop
			return
		}
	}
}

// known asks once whether there is such a run, and whether anybody answers: only
// a service that was there is waited for.
func known(ctx context.Context, e *command.Env, agent, id string) error {
	_, err := e.RunnerService().WaitRun(ctx, &runner.WaitRunRequest{AgentId: agent, RunId: id, Timeout: durationpb.New(time.Millisecond)})
	return err
}

// tell prints the end of a run; one without a reply of its own is an error when
// it failed, and a note when the agent had nothing to say.
func tell(e *command.Env, agent, id string, r *runner.WaitRunResponse) error {
	var why error
	if r.GetStatus() == runner.RunStatus_RUN_STATUS_ERROR {
		why = failed(agent, id, r.GetError())
	}
	if e.Data() {
		end := ending{
			RunID: id, Status: "ok", Reply: r.GetText(), StartedAt: command.Stamp(r.GetStartedAt()), EndedAt: command.Stamp(r.GetEndedAt()),
			InputTokens: r.GetInputTokens(), OutputTokens: r.GetOutputTokens(), Payloads: payloads(r.GetPayloads()), MergedInto: r.GetMergedInto(),
		}
		if why != nil {
			f := fault.From(why)
			end.Status, end.ErrorCode, end.Error, end.Suggestion = "error", command.Word(r.GetErrorCode(), "RUN_ERROR_", ""), f.What, f.Fix
			why = &command.ReportedError{}
		}
		return errors.Join(e.Print(end, []string{id}, nil), why)
	}
	if why != nil {
		return why
	}
	if r.GetText() == "" {
		e.Note("the run has ended without a reply of its own")
		return nil
	}
	fmt.Fprintln(e.Out, screen.Text(e, r.GetText()))
	return nil
}

func failed(agent, id, why string) error {
	if why == "" {
		why = "it has no reply"
	}
	return fault.New(codes.Aborted, fault.Internal, "the run failed: "+why, fmt.Sprintf("see 'agentctl turns %s'; the run id is %s", agent, id))
}

func waitCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "wait ID RUN",
		Short: "Wait for the end of a run and print its reply",
		Long: `Wait for the end of a run and print its reply: 30 seconds, or --timeout. For a run that
has ended the command returns at once; a timeout does not abort the run. The exit code is
0 when the message was answered, 1 when the run failed or has not ended.`,
		Example: `  agentctl run wait alice "$(agentctl agent alice --message hello)"
  agentctl run wait alice RUN --timeout 5m --json`,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := limit(c, e, true)
			if err != nil {
				return err
			}
			if err := known(c.Context(), e, args[0], args[1]); err != nil {
				return err
			}
			r, err := await(c.Context(), e, args[0], args[1], d)
			if err != nil {
				return err
			}
			return tell(e, args[0], args[1], r)
		},
	}
}

func abortCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "abort ID RUN",
		Short: "Abort a run",
		Long:  `Abort a run in progress; its tools are stopped and its output so far is kept.`,
		Example: `  agentctl run abort alice RUN
  agentctl run abort alice RUN --json`,
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := e.RunnerService().AbortRun(c.Context(), &runner.AbortRunRequest{AgentId: args[0], RunId: args[1]}); err != nil {
				return err
			}
			return done(e, args[1], "run "+args[1]+" is aborted")
		},
	}
}

// done tells that a run is aborted.
func done(e *command.Env, id, words string) error {
	return e.Show(struct {
		RunID  string `json:"run_id"`
		Status string `json:"status"`
	}{id, "aborted"}, id, "%s", screen.Line(words))
}
