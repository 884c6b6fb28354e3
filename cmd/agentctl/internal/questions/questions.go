// Package questions implements the command `agentctl questions`: it lists the questions that
// agents ask the people they talk to, and answers them for those people.
//
// The registry stores the questions and decides which answer stands.
package questions

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxAnswer bounds what is read of an answer, in bytes; the registry takes as much.
const maxAnswer = 64 << 10

// question is a question for programs.
type question struct {
	ID        string     `json:"id"`
	AgentID   string     `json:"agent_id"`
	ThreadID  string     `json:"thread_id"`
	Peer      string     `json:"peer"`
	Text      string     `json:"text"`
	Options   []string   `json:"options,omitempty"`
	AllowText bool       `json:"allow_text"`
	State     string     `json:"state"`
	Answer    string     `json:"answer,omitempty"`
	By        string     `json:"by,omitempty"`
	Requested time.Time  `json:"requested_at"`
	Expires   time.Time  `json:"expires_at"`
	Ended     *time.Time `json:"ended_at,omitempty"`
}

func of(q *registry.Question) question {
	out := question{
		q.GetQuestionId(), q.GetAgentId(), q.GetThreadId(), q.GetPeer(), q.GetText(), q.GetOptions(), q.GetAllowText(),
		command.Word(q.GetState(), "QUESTION_STATE_", "unspecified"), q.GetAnswer(), q.GetBy(), q.GetRequestedAt().AsTime(), q.GetExpiresAt().AsTime(), nil,
	}
	if q.GetEndedAt() != nil {
		ended := q.GetEndedAt().AsTime()
		out.Ended = &ended
	}
	return out
}

// Command returns the command questions.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "questions",
		Short: "Answer the questions of agents",
		Long: `Answer the questions that agents ask with the tool ask_user. The first answer counts,
yours or the next message of the person that was asked. Without an answer in time
(tools.question_timeout) the agent goes on without one.`,
		Example: `  agentctl questions list
  agentctl questions watch
  agentctl questions answer 019aa2c1f3e5b7d21 2`,
	}, listCommand(e), watchCommand(e), answerCommand(e))
}

func listCommand(e *command.Env) *cobra.Command {
	var agent string
	var all bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the questions that wait for an answer",
		Example: `  agentctl questions list
  agentctl questions list --all --agent alice`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := e.MustExist(c.Context(), agent); err != nil {
				return err
			}
			req := &registry.ListQuestionsRequest{AgentId: agent, State: registry.QuestionState_QUESTION_STATE_PENDING}
			if all {
				req.State = registry.QuestionState_QUESTION_STATE_UNSPECIFIED
			}
			list, err := command.Pages(func(token string) ([]*registry.Question, string, error) {
				req.PageToken = token
				r, err := e.Questions().ListQuestions(c.Context(), req)
				return r.GetQuestions(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			out := []question{}
			for _, q := range list {
				out = append(out, of(q))
			}
			t := screen.NewTable(e, "id", "agent", "state", "ends", "peer", "answer", "question").Wide("peer").Drop("answer", "state")
			return screen.List(t.None("no questions"), out, func(q question) []any {
				return []any{q.ID, q.AgentID, q.State, q.Expires.Local().Format(time.TimeOnly), q.Peer, q.Answer, words(q)}
			})
		},
	}
	command.AgentFlag(c, &agent, "only this agent")
	c.Flags().BoolVar(&all, "all", false, "include those that were answered or have ended")
	return c
}

// words are a question and its options in one line.
func words(q question) string {
	var b strings.Builder
	b.WriteString(screen.Line(q.Text))
	for n, o := range q.Options {
		fmt.Fprintf(&b, " (%d) %s", n+1, screen.Line(o))
	}
	return b.String()
}

func answerCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "answer QUESTION [ANSWER]",
		Short: "Answer a question",
		Long: `Answer a question with the number or the text of an option, or in words where the
question allows that. Without ANSWER it is read from standard input.`,
		Example: `  agentctl questions answer 019aa2c1f3e5b7d21 2
  agentctl questions answer 019aa2c1f3e5b7d21 "the savings account"`,
		ValidArgsFunction: e.Complete(func(ctx context.Context, e *command.Env, given []string) ([]string, error) {
			if len(given) > 0 {
				return nil, nil
			}
			var out []string
			r, err := e.Questions().ListQuestions(ctx, &registry.ListQuestionsRequest{State: registry.QuestionState_QUESTION_STATE_PENDING})
			for _, q := range r.GetQuestions() {
				out = append(out, q.GetQuestionId()+"\t"+screen.Line(q.GetText()))
			}
			return out, err
		}),
		RunE: func(c *cobra.Command, args []string) error {
			req := &registry.AnswerQuestionRequest{QuestionId: args[0]}
			if len(args) > 1 {
				req.Answer = args[1]
			} else {
				b, err := io.ReadAll(io.LimitReader(e.In, maxAnswer+1))
				if err != nil {
					return fault.Usage("the answer cannot be read: "+err.Error(), "give it as an argument")
				}
				req.Answer = strings.ToValidUTF8(string(b), "\uFFFD")
			}
			r, err := e.Questions().AnswerQuestion(c.Context(), req)
			if err != nil {
				return err
			}
			q := of(r.GetQuestion())
			return e.Show(q, q.ID, "%s %s: %s\n", q.ID, q.State, screen.Line(q.Answer))
		},
	}
}

// watching is one call of the command.
type watching struct {
	env   *command.Env
	agent string
	left  int               // lines to show; 0: no bound
	shown map[string]string // the last state shown, by question
}

func watchCommand(e *command.Env) *cobra.Command {
	w := &watching{env: e, shown: map[string]string{}}
	c := &cobra.Command{
		Use:   "watch",
		Short: "Show questions when they are asked and answered",
		Long: `Show the questions that wait, then each one when it is asked and when it ends, until
Ctrl-C. Answer in a second terminal, with the command that is shown. With --json each is
one line.`,
		Example: `  agentctl questions watch
  agentctl questions watch --json | jq -r 'select(.state == "pending") | .text'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := e.MustExist(c.Context(), w.agent); err != nil {
				return err
			}
			// A stream is silent while there is no question; this call reports a registry that is away.
			if _, err := e.Questions().ListQuestions(c.Context(), &registry.ListQuestionsRequest{PageSize: 1}); err != nil {
				return err
			}
			return command.Follow(c.Context(), func(ctx context.Context) (grpc.ServerStreamingClient[registry.WatchQuestionsResponse], error) {
				return w.env.Questions().WatchQuestions(ctx, &registry.WatchQuestionsRequest{})
			}, func(r *registry.WatchQuestionsResponse) error { return w.show(of(r.GetQuestion())) })
		},
	}
	command.AgentFlag(c, &w.agent, "only this agent")
	command.NumberFlag(c, &w.left, "count", 0, math.MaxInt, "exit after this many; 0: at Ctrl-C")
	return c
}

func (w *watching) show(q question) error {
	if w.agent != "" && q.AgentID != w.agent || w.shown[q.ID] == q.State { // a stream that began again repeats what waits
		return nil
	}
	w.shown[q.ID] = q.State
	printed, err := w.env.Item(q, q.ID)
	switch {
	case err != nil:
		return err
	case printed:
	case q.State == "pending":
		fmt.Fprintf(w.env.Out, "%s asks until %s: %s\n", q.AgentID, q.Expires.Local().Format(time.TimeOnly), words(q))
		fmt.Fprintf(w.env.Out, "  agentctl questions answer %s ANSWER\n", q.ID)
	case q.Answer != "":
		fmt.Fprintf(w.env.Out, "%s %s: %s\n", q.ID, q.State, screen.Line(q.Answer))
	default:
		fmt.Fprintf(w.env.Out, "%s %s\n", q.ID, q.State)
	}
	if w.left--; w.left == 0 {
		return command.ErrEnough
	}
	return nil
}
