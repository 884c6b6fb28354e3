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
// is 0 when every message got its reply, 1 when one failed. What asks for input is on standard
// error, and the replies are on standard output. With --plain it is the same
// with the names of the speakers, what the agent does, and its questions (plain.go): for
// screen readers, at a terminal and in a pipe. The commands that begin with a slash are those
// of the screen (slash.go).
//
// On the screen the agent's text is in the 16 colors, chosen for a dark or a light background;
// with NO_COLOR there are none, and TERM=dumb is --plain.
package chat

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
)

// Options of a conversation.
type Options struct {
	// Plain is for screen readers: lines with the names of the speakers, no full screen.
	Plain bool
	// Introduce reports the model where no screen does.
	Introduce bool
	// Session is the key of the conversation; empty: it is the one of the peer.
	Session string
	// Model is set for the conversation before the first message, as PROVIDER/MODEL; empty: it
	// stays as it is.
	Model string
}

// Flags adds those of a conversation to a command.
func (o *Options) Flags(c *cobra.Command) {
	c.Flags().BoolVar(&o.Plain, "plain", false, "for screen readers: lines of text with the speaker's name, no full screen")
}

// Check refuses what does not go together.
func (o *Options) Check(c *cobra.Command, e *command.Env) error {
	if o.Plain && e.Flags.JSON {
		return command.Usage(c, "--plain and --json exclude each other")
	}
	return nil
}

// Command answers the command chat.
func Command(e *command.Env) *cobra.Command {
	thread, session, from, o := "", "", "", Options{}
	c := &cobra.Command{
		Use:   "chat [ID]",
		Short: "Talk to an agent",
		Long: `Talk to an agent; without ID to the default agent. The programs ac and agentclaw are this
command. At a terminal: Enter sends, Up and Down recall earlier messages,
Ctrl-C aborts the run, or exits when there is none, Ctrl-O unfolds thoughts and tools,
/help shows the rest. Without a terminal each line of standard input is a message, and
the replies are printed in order; with --json as one object a line. A line that is exit or
quit ends the conversation, except with --json.

With --plain there is no full screen, no cursor movement and no color, at a terminal and
in a pipe: every message, tool and question is a line that begins with who it is from.
A question whether a command may run is answered with y or n. The commands of /help are the
same as on the screen. Ctrl-C aborts the run and exits, Ctrl-D exits.

--session goes on with any conversation of the agent, such as one of a chat platform;
'agentctl sessions list ID' shows the keys. --provider gives the conversation the default model of a
provider from the next message on, as /model does; /model default ends that.`,
		Example: `  agentctl chat alice
  agentctl chat alice --thread plans
  agentctl chat alice --session agent:alice:console:cli:dm:cli
  agentctl chat alice --plain
  agentctl chat alice --provider offline
  printf 'hello\n' | agentctl chat alice`,
		Args:              command.Args("[ID]"),
		ValidArgsFunction: e.CompleteID,
		RunE: func(c *cobra.Command, args []string) error {
			peer, err := message.ParsePeer(thread)
			if err != nil {
				return err
			}
			if err := o.Check(c, e); err != nil {
				return err
			}
			if session != "" && thread != "" {
				return command.Usage(c, "--thread and --session exclude each other")
			}
			agent := ""
			if len(args) > 0 {
				agent = args[0]
			} else if agent, err = e.DefaultAgent(c.Context()); err != nil {
				return err
			}
			if session != "" {
				if o.Session, err = message.SessionKey(c.Context(), e, agent, session); err != nil {
					return err
				}
			}
			if from != "" {
				if o.Model, err = provider.Default(c.Context(), e, from); err != nil {
					return err
				}
			}
			return Run(c.Context(), e, agent, peer, o)
		},
	}
	command.TextFlag(c.Flags(), &thread, "thread", command.Conversation, "name of a separate conversation")
	command.TextFlag(c.Flags(), &session, "session", command.AnySession, "key of the conversation")
	command.TextFlag(c.Flags(), &from, "provider", command.Provider, "model provider that answers in this conversation from now on")
	o.Flags(c)
	return c
}

// Run talks to a started agent until the person leaves or the input ends.
func Run(ctx context.Context, e *command.Env, agent string, peer message.Peer, o Options) error {
	if err := message.RequireStarted(ctx, e, agent); err != nil {
		return err
	}
	from := &feed.Source{Env: e, Agent: agent, Peer: peer, Session: o.Session}
	if o.Model != "" {
		set, _ := from.Model(ctx, feed.Place{}, o.Model)().(feed.CommandResult)
		if set.Err != nil {
			return set.Err
		}
		e.Note("%s", screen.Clean(set.Text))
	}
	in, out := e.Terminal()
	dumb := in != nil && e.Getenv("TERM") == "dumb"
	if in != nil && !dumb && !o.Plain && !e.Flags.JSON {
		return converse(ctx, from, in, out)
	}
	plain := (o.Plain || dumb) && !e.Flags.JSON
	introduce(ctx, e, agent, o.Introduce || plain)
	if plain {
		return runPlain(ctx, from)
	}
	return runLines(ctx, from)
}

// introduction bounds the wait for a runner that would name the model: the first message
// waits for one anyway.
const introduction = 10 * time.Second

// introduce reports on standard error why the model cannot be used, and always, if that is
// asked for, which one it is.
func introduce(ctx context.Context, e *command.Env, agent string, always bool) {
	limit := introduction
	if !always {
		limit /= 3
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m := feed.ModelOf(ctx, e, agent)
	if always {
		e.Note("%s", screen.Line(m.Line()))
	}
	if m.Problem != "" {
		e.Note("warning: %s", screen.Line(m.Problem))
	}
}
