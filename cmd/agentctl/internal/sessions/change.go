package sessions

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func patchCommand(e *command.Env) *cobra.Command {
	var model, thinking, verbose, reasoning, queue, footer, elevated, title string
	c := &cobra.Command{
		Use:   "patch KEY",
		Short: "Change the settings of a session",
		Long: `Change the settings of a session from its next message on. They hold in this conversation
alone, also in later epochs. An empty value, such as --model "", returns to the setting of
the agent.`,
		Example: `  agentctl sessions patch agent:alice:console:cli:dm:cli --thinking adaptive
  agentctl sessions patch agent:alice:console:cli:dm:cli --model "" --title "Plans for May"`,
		Annotations: keyed,
		RunE: func(c *cobra.Command, args []string) error {
			req := &registry.PatchSessionRequest{AgentId: command.SessionAgent(args[0]), Key: args[0]}
			var changes []string
			for _, f := range []struct {
				name  string
				value *string
				field **string
			}{
				{"model", &model, &req.Model},
				{"thinking", &thinking, &req.Thinking},
				{"verbose", &verbose, &req.Verbose},
				{"reasoning", &reasoning, &req.Reasoning},
				{"queue-mode", &queue, &req.QueueMode},
				{"usage-footer", &footer, &req.UsageFooter},
				{"elevated", &elevated, &req.Elevated},
				{"title", &title, &req.Title},
			} {
				if !c.Flags().Changed(f.name) {
					continue
				}
				*f.field = f.value
				changes = append(changes, change(f.name, *f.value))
			}
			if len(changes) == 0 {
				return command.Usage(c, "there is nothing to change: give a flag such as --model")
			}
			r, err := e.Sessions().PatchSession(c.Context(), req)
			if err != nil {
				return err
			}
			s := complete(c.Context(), e, r.GetSession())
			return e.Show(detailOf(s), s.GetKey(), "%s: %s", screen.Line(s.GetKey()), screen.Line(strings.Join(changes, ", ")))
		},
	}
	f := c.Flags()
	command.TextFlag(f, &model, "model", command.NoModel, "model that answers: PROVIDER/NAME, or a name of the agent's provider")
	command.TextFlag(f, &thinking, "thinking", command.NoThinking, "off, minimal, low, medium, high, xhigh, adaptive or a number of tokens")
	command.TextFlag(f, &verbose, "verbose", command.Verbose, "calls of tools before a reply: off, on, or full with their results")
	command.TextFlag(f, &reasoning, "reasoning", command.Reasoning, "what the model thinks: off, stream to clients, or block before a reply")
	command.TextFlag(f, &queue, "queue-mode", command.QueueMode, "messages that arrive during a turn: followup, collect, steer or interrupt")
	command.TextFlag(f, &footer, "usage-footer", command.UsageFooter, "line at the end of replies in a chat: off, tokens, or full with the model")
	command.TextFlag(f, &elevated, "elevated", command.Elevated, "commands outside of the sandbox, for senders who may: off, on, ask or full")
	command.TextFlag(f, &title, "title", command.Title, "title for people")
	return c
}

// change is one change in words.
func change(name, value string) string {
	switch {
	case value != "":
		return name + " " + value
	case name == "title":
		return "no title"
	}
	return name + " as the agent's settings say"
}

func resetCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "reset KEY",
		Short: "Let the next message of a session begin a new epoch",
		Long: `Let the next message of a session begin a new epoch: the model sees nothing from before
it. A turn that runs now ends in the present one. No message is removed, and the settings
of the session stay.`,
		Example:     `  agentctl sessions reset agent:alice:console:cli:dm:cli`,
		Annotations: keyed,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Sessions().ResetSession(c.Context(), &registry.ResetSessionRequest{AgentId: command.SessionAgent(args[0]), Key: args[0]})
			if err != nil {
				return err
			}
			return changed(e, complete(c.Context(), e, r.GetSession()), "the next message begins a new epoch")
		},
	}
}

func archiveCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "archive KEY",
		Short: "Leave a session out of the list until its next message",
		Long: `Leave a session out of the list until its next message, which begins a new epoch. No
message is removed; 'agentctl sessions list ID --archived' shows the session.`,
		Example:     `  agentctl sessions archive agent:alice:console:cli:dm:cli`,
		Annotations: keyed,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Sessions().ArchiveSession(c.Context(), &registry.ArchiveSessionRequest{AgentId: command.SessionAgent(args[0]), Key: args[0]})
			if err != nil {
				return err
			}
			return changed(e, complete(c.Context(), e, r.GetSession()), "archived until its next message, which begins a new epoch")
		},
	}
}

// complete reads a session again after its change, whose answer lacks what the list knows:
// when it was last active, and its messages. The change is made; without a second answer the
// first one is shown.
func complete(ctx context.Context, e *command.Env, s *registry.Session) *registry.Session {
	if all, err := get(ctx, e, s.GetKey()); err == nil {
		return all
	}
	return s
}

// changed prints what became of a session, and where its earlier messages are.
func changed(e *command.Env, s *registry.Session, what string) error {
	return e.Show(detailOf(s), s.GetKey(), "%s: %s. Earlier messages stay in 'agentctl sessions history KEY --all'", screen.Line(s.GetKey()), what)
}
