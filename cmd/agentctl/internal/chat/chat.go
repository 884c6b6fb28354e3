// Package chat owns the conversation at the console. It speaks through the
// inbox, as every channel does, so that what is said here is journalled,
// explained and answered like everything else.
//
// At a terminal it is a line editor with history under a scrolling transcript:
//
//	typing --Enter--> pushed --GetTurn--> replied | dead --> typing
//	   |                 \--StreamRun--> text as it comes
//	   Ctrl-D, or Ctrl-C on an empty line: exit 0
//
// Without a terminal each line of standard input is a message and each reply is
// printed in order; the exit code is 0 when every message had its reply, 1 when
// one failed.
package chat

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/command"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
)

// Command answers the command chat.
func Command(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "chat ID",
		Short: "Talk to an agent",
		Long: `Talk to an agent. At a terminal: type, Enter sends, Up and Down recall, Ctrl-C
clears the line, Ctrl-D on an empty line leaves. Otherwise every line of standard
input is a message, and the replies are printed in order; with --json as one
object a line.`,
		Example: `  agentctl chat alice
  printf 'hello\n' | agentctl chat alice`,
		Args:              command.Args("ID"),
		ValidArgsFunction: e.CompleteID,
		RunE: func(c *cobra.Command, args []string) error {
			return Run(c.Context(), e, args[0])
		},
	}
}

// Run talks to a started agent until the person leaves or the input ends.
func Run(ctx context.Context, e *command.Env, agent string) error {
	if err := message.Awake(ctx, e, agent); err != nil {
		return err
	}
	if in, out := e.Terminal(); in != nil && e.Getenv("TERM") != "dumb" && !e.Flags.JSON {
		return converse(ctx, e, agent, in, out)
	}
	return pipe(ctx, e, agent)
}
