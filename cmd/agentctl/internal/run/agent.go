package run

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/agent"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/thread"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

type asking struct {
	agent, text, thread, session, key, thinking string
	wait, verbose                               bool
}

func agentCommand(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{
		Use:   "agent [ID]",
		Short: "Run one turn of an agent, for scripts",
		Long: `Send a message to an agent and print the id of the run. With --wait, wait for the reply
and print it instead (30 seconds, or --timeout). --verbose prints tools on standard
error, and thoughts where reasoning of the session is stream. --thinking overrides the
thinking of the provider for this run: off, a level from minimal over low, medium and
high to xhigh, adaptive, or a number of tokens (api anthropic; ignored by other models);
with --wait the thoughts are printed on standard error as they arrive. The exit code is 0
when the message was answered, 1 when the run failed or has not ended, 2 for an invalid
command line.`,
		Example: `  agentctl agent alice --message "What is new?" --wait
  agentctl agent --agent alice --message "Tidy up" --thread chores
  agentctl agent alice --message "Go on" --session agent:alice:console:cli:dm:cli
  agentctl agent alice --message "Why is that?" --wait --thinking adaptive
  agentctl agent alice --message "Tidy up" --wait --timeout 5m --verbose --json`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && a.agent != "" {
				return command.Usage(c, "name the agent once: as ID, or with --agent")
			}
			if len(args) == 1 {
				a.agent = args[0]
			}
			return a.run(c, e)
		},
	}
	f := c.Flags()
	command.TextFlag(f, &a.agent, "agent", command.Agent, "agent, instead of ID")
	command.TextFlag(f, &a.text, "message,m", command.Message, "message to send; - reads standard input")
	command.TextFlag(f, &a.thread, "thread", command.Conversation, "name of a separate conversation")
	command.TextFlag(f, &a.session, "session", command.SessionOrName, "key of the conversation, or a name as for --thread")
	command.TextFlag(f, &a.key, "idempotency-key", command.Key, "start at most one run with this key")
	f.BoolVar(&a.wait, "wait", false, "wait for the reply and print it")
	f.BoolVar(&a.verbose, "verbose", false, "with --wait: tools, and thoughts that are shown, on standard error")
	command.TextFlag(f, &a.thinking, "thinking", command.Thinking, "off, minimal, low, medium, high, xhigh, adaptive or a number of tokens, for this run")
	c.AddCommand(agent.Remove(e)) // an agent of that name is given with --agent
	return c
}

// started is a run for programs.
type started struct {
	RunID      string  `json:"run_id"`
	InboxID    int64   `json:"inbox_id"`
	AcceptedAt *string `json:"accepted_at"`
}

func (a *asking) run(c *cobra.Command, e *command.Env) error {
	switch {
	case a.agent == "":
		return command.Usage(c, "the agent is missing: give ID, or --agent")
	case !c.Flags().Changed("message"):
		return command.Usage(c, "--message is missing")
	case a.session != "" && a.thread != "":
		return command.Usage(c, "--thread and --session exclude each other")
	case a.verbose && !a.wait:
		return command.Usage(c, "--verbose needs --wait; 'agentctl run stream' watches a run later")
	}
	limit, err := limit(c, e, a.wait)
	if err != nil {
		return err
	}
	text, err := message.Read(e, a.text)
	if err != nil {
		return err
	}
	if err := message.CheckText(string(thread.AppendString([]byte(`{"text":`), text))+"}", text); err != nil {
		return err
	}
	peer, session, err := a.conversation(c.Context(), e)
	if err != nil {
		return err
	}
	if a.wait {
		if err := message.RequireStarted(c.Context(), e, a.agent); err != nil {
			return err
		}
	}
	if a.key == "" {
		a.key = message.NewKey()
	}
	r, err := e.RunnerService().StartRun(c.Context(), &runner.StartRunRequest{AgentId: a.agent, Source: peer.Source(), Text: text, IdempotencyKey: a.key, Thinking: a.thinking, SessionKey: session})
	if err != nil {
		return err
	}
	if !a.wait {
		return e.Show(started{r.GetRunId(), r.GetInboxId(), command.Stamp(r.GetAcceptedAt())}, r.GetRunId(), "%s", r.GetRunId())
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	e.Err = &lines{w: e.Err}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if thoughts := a.thinking != "" && a.thinking != "off"; (a.verbose || thoughts) && !e.Flags.JSON {
			n := narrator{out: e.Err, live: thoughts, quiet: !a.verbose}
			_ = follow(ctx, e, a.agent, r.GetRunId(), 0, n.tell) // an extra: the wait says what is wrong
		}
	}()
	end, err := await(ctx, e, a.agent, r.GetRunId(), limit)
	if err != nil {
		cancel() // nobody wants the rest
	}
	<-watched
	if err != nil {
		return err
	}
	if a.verbose && !e.Flags.JSON {
		e.Note("%s", usage(end))
	}
	return tell(e, a.agent, r.GetRunId(), end)
}

// conversation is who speaks, and the key of the conversation where one was given.
func (a *asking) conversation(ctx context.Context, e *command.Env) (peer message.Peer, session string, err error) {
	if strings.Contains(a.session, ":") {
		session, err = message.SessionKey(ctx, e, a.agent, a.session)
		return message.Console, session, err
	}
	peer, err = message.ParsePeer(cmp.Or(a.thread, a.session))
	return peer, "", err
}

func usage(r *runner.WaitRunResponse) string {
	parts := []string{fmt.Sprintf("%d tokens in, %d out", r.GetInputTokens(), r.GetOutputTokens())}
	if r.GetStartedAt() != nil && r.GetEndedAt() != nil {
		parts = append(parts, fmt.Sprintf("%.1f s", r.GetEndedAt().AsTime().Sub(r.GetStartedAt().AsTime()).Seconds()))
	}
	return strings.Join(parts, ", ")
}
