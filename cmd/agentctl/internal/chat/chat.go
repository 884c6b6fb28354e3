// Package chat implements the command `agentctl chat`, a conversation in the terminal.
// It uses the inbox, as every channel does, so that its messages are journaled,
// explained and answered like all others.
//
// At a terminal it is a screen: the transcript (package transcript), and an editor
// below it.
//
//	typing --Enter--> pushed --GetTurn--> replied | dead | aborted --> typing
//	   |                 \--StreamRun--> thoughts, tools, text as they come
//	   |                  \--Ctrl-C----> AbortRun
//	   Ctrl-D, or Ctrl-C with nothing under way and nothing typed: exit 0
//
// A message sent during a run goes into the inbox at once and appears on the screen
// when its turn starts. The calls to the services are in package feed; when a service is
// unavailable the screen reports it and recovers automatically.
//
// Without a terminal each line of standard input is a message (lines.go); the exit code
// is 0 when every message got its reply, 1 when one failed.
package chat

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
)

// Command answers the command chat.
func Command(e *command.Env) *cobra.Command {
	thread := ""
	c := &cobra.Command{
		Use:   "chat ID",
		Short: "Talk to an agent",
		Long: `Talk to an agent. At a terminal: Enter sends, Up and Down recall earlier messages,
Ctrl-C aborts the run, or exits when there is none, Ctrl-O unfolds thoughts and tools,
/help shows the rest. Without a terminal each line of standard input is a message, and
the replies are printed in order; with --json as one object a line.`,
		Example: `  agentctl chat alice
  agentctl chat alice --thread plans
  printf 'hello\n' | agentctl chat alice`,
		Args:              command.Args("ID"),
		ValidArgsFunction: e.CompleteID,
		RunE: func(c *cobra.Command, args []string) error {
			peer, err := message.ParsePeer(thread)
			if err != nil {
				return err
			}
			return Run(c.Context(), e, args[0], peer)
		},
	}
	c.Flags().StringVar(&thread, "thread", "", "name of a separate conversation")
	return c
}

// Run talks to a started agent until the person leaves or the input ends.
func Run(ctx context.Context, e *command.Env, agent string, peer message.Peer) error {
	if err := message.RequireStarted(ctx, e, agent); err != nil {
		return err
	}
	problem := feed.Usable(ctx, e, agent)
	if in, out := e.Terminal(); in != nil && e.Getenv("TERM") != "dumb" && !e.Flags.JSON {
		return converse(ctx, e, agent, peer, problem, in, out)
	}
	if problem != "" {
		e.Note("warning: %s", screen.Line(problem))
	}
	return runLines(ctx, e, agent, peer)
}
