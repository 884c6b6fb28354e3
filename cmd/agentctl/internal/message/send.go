package message

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// waitFor is how long send --wait waits unless --timeout is given.
const waitFor = 10 * time.Minute

// sent is the answer of send for programs. The fate and the reply are there with --wait. A record
// has no thread and no run.
type sent struct {
	EventID        int64   `json:"event_id"`
	Duplicate      bool    `json:"duplicate"`
	IdempotencyKey string  `json:"idempotency_key"`
	ThreadID       string  `json:"thread_id,omitempty"`
	RunID          string  `json:"run_id,omitempty"`
	Fate           string  `json:"fate,omitempty"`
	Reply          *string `json:"reply,omitempty"`
}

type sending struct {
	source, kind, subtype, content, key string
	wait                                bool
}

// Command answers the command send.
func Command(e *command.Env) *cobra.Command {
	var s sending
	c := &cobra.Command{
		Use:   "send ID [TEXT]",
		Short: "Put a message into an agent's inbox",
		Long: `Put a message into an agent's inbox and print the id of the event. TEXT is sent in your
name, from the console; - reads it from standard input. With --source, --type and
--content any event can be sent unchanged.

A message has an idempotency key: sending again with the same key stores nothing and
prints the first id. Without --idempotency-key a new key is generated.`,
		Example: `  agentctl send alice "What is on my list today?"
  git log -5 | agentctl send alice -
  agentctl send alice "Summarise the news" --wait
  agentctl send alice --source external:telegram:main:dm:u1:u1 --type message \
      --content '{"channel_id":"main","peer_id":"u1","session_id":"u1","text":"hi"}'`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(c, args); err != nil {
				return err
			}
			return s.run(c, e, args)
		},
	}
	f := c.Flags()
	command.TextFlag(f, &s.source, "source", command.Source, "address of the sender (with --type and --content)")
	command.TextFlag(f, &s.kind, "type", command.EventType, "type of the event: message or record")
	command.TextFlag(f, &s.subtype, "subtype", command.Subtype, "subtype of the event")
	command.TextFlag(f, &s.content, "content", command.Content, "content of the event; - reads standard input")
	command.TextFlag(f, &s.key, "idempotency-key", command.Key, "send at most once with this key")
	f.BoolVar(&s.wait, "wait", false, "wait for the reply and print it (up to 10 minutes, or --timeout)")
	return c
}

// check judges the combination of flags before anything is read or called.
func (s *sending) check(c *cobra.Command, args []string) error {
	raw := false
	for _, name := range []string{"source", "type", "subtype", "content"} {
		raw = raw || c.Flags().Changed(name)
	}
	switch {
	case raw && len(args) == 2:
		return command.Usage(c, "TEXT and --source, --type, --content exclude each other")
	case !raw && len(args) == 1:
		return command.Usage(c, "the message is missing: give TEXT, or --source, --type and --content")
	case raw && s.source == "":
		return command.Usage(c, "--source is missing")
	case raw && s.kind == "":
		return command.Usage(c, "--type is missing")
	case raw && !c.Flags().Changed("content"):
		return command.Usage(c, "--content is missing")
	}
	return nil
}

func (s *sending) run(c *cobra.Command, e *command.Env, args []string) error {
	if s.key == "" {
		s.key = NewKey()
	}
	ev, err := s.event(e, args)
	if err != nil {
		return err
	}
	agent := args[0]
	if s.wait {
		if err := RequireStarted(c.Context(), e, agent); err != nil {
			return err
		}
	}
	pushed, err := Push(c.Context(), e, agent, s.key, ev)
	if err != nil {
		return err
	}
	answer := sent{EventID: pushed.GetEventIds()[0], Duplicate: pushed.GetDuplicate(), IdempotencyKey: s.key}
	if len(pushed.GetRunIds()) == 1 { // an earlier registry names neither
		answer.ThreadID, answer.RunID = pushed.GetThreadIds()[0], pushed.GetRunIds()[0]
	}
	if s.wait {
		return s.await(c, e, agent, answer)
	}
	if err := RequireStarted(c.Context(), e, agent); err != nil && fault.From(err).Reason == fault.AgentStopped {
		e.Note("Agent '%s' is not started: the message waits until you run 'agentctl start %s'", agent, agent)
	}
	return e.Show(answer, fmt.Sprint(answer.EventID), "%d", answer.EventID)
}

func (s *sending) await(c *cobra.Command, e *command.Env, agent string, answer sent) error {
	limit := waitFor
	if c.Flags().Changed("timeout") {
		limit = e.Flags.Timeout
	}
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	e.Note("message %d accepted; waiting for the reply", answer.EventID)
	t, err := Turn(ctx, e, agent, answer.EventID, true, Note(e))
	if err != nil {
		return TimedOut(err, agent, answer.EventID)
	}
	text, ok, err := Reply(c.Context(), e, t)
	if err != nil {
		return err
	}
	answer.Fate, answer.RunID, answer.ThreadID = FateName(t.GetFate()), t.GetKey(), t.GetThreadId()
	if ok {
		answer.Reply = &text
	}
	return e.Print(answer, []string{fmt.Sprint(answer.EventID)}, func() error {
		if ok {
			_, err = fmt.Fprintln(e.Out, screen.Text(e, text))
			return err
		}
		e.Note("message %d has no reply of its own: %s", answer.EventID, FateName(t.GetFate()))
		return nil
	})
}

func (s *sending) event(e *command.Env, args []string) (*registry.NewEvent, error) {
	if len(args) == 2 {
		text, err := Read(e, args[1])
		if err != nil {
			return nil, err
		}
		content := Console.Envelope(s.key, text)
		if err := CheckText(content, text); err != nil {
			return nil, err
		}
		return &registry.NewEvent{Source: Console.Source(), Type: thread.TypeMessage, Content: content}, nil
	}
	content, err := dash(e, s.content)
	if err != nil {
		return nil, err
	}
	if err := Check("the content", content); err != nil {
		return nil, err
	}
	if err := route.CheckStated(s.source, content); err != nil {
		f := fault.From(err)
		return nil, fault.Usage(f.What, f.Fix)
	}
	ev := &registry.NewEvent{Source: s.source, Type: s.kind, Content: content}
	if s.subtype != "" {
		ev.Subtype = &s.subtype
	}
	return ev, nil
}

// Read is a text that was given, or standard input without its last line break
// where "-" was.
func Read(e *command.Env, value string) (string, error) {
	text, err := dash(e, value)
	if err != nil || value != "-" {
		return text, err
	}
	return strings.TrimRight(text, "\r\n"), nil
}

// dash reads standard input where the value is "-".
func dash(e *command.Env, value string) (string, error) {
	if value != "-" {
		return value, nil
	}
	b, err := io.ReadAll(io.LimitReader(e.In, thread.MaxEvent+1))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	if len(b) > thread.MaxEvent {
		return "", tooLarge("the message on standard input", len(b))
	}
	return string(b), nil
}

// FateName is the word for a fate; "" for none yet.
func FateName(f registry.Fate) string {
	return strings.ReplaceAll(command.Word(f, "FATE_", ""), "_", "-")
}
