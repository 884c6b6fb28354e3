package threadtool

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool/access"
	"github.com/theclaw/agents/internal/store"
)

// span are the flags that say which events.
type span struct{ after, limit number }

func (s *span) flags(c *cobra.Command) {
	s.limit = number{value: 100, least: 1}
	c.Flags().Var(&s.after, "last-event-id", "print events after this id; 0 starts with the first")
	c.Flags().Var(&s.limit, "limit", "maximum number of events")
}

func (s *span) check(c *cobra.Command) error {
	if !s.after.given {
		return command.Usage(c, "--last-event-id is missing: 0 begins at the first event")
	}
	return nil
}

func peekCommand(e *command.Env) *cobra.Command {
	var at target
	var s span
	var where string
	c := &cobra.Command{
		Use:   "peek",
		Short: "Print events without acknowledging them",
		Long:  `Print the events after an id, one JSON object a line, and change nothing.`,
		Example: `  thread peek --thread ./t --last-event-id 0
  thread peek --thread ./t --last-event-id 42 --limit 10 --filter "type = 'message'"`,
		Args: command.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(c); err != nil {
				return err
			}
			f, err := parseFilter(c, where)
			if err != nil {
				return err
			}
			return at.with(c, e, func(d access.Conn, _ access.Place) error {
				return printEvents(c.Context(), e, d, access.Query{After: s.after.value, Limit: int(s.limit.value), Filter: f})
			})
		},
	}
	at.flag(c)
	s.flags(c)
	command.TextFlag(c.Flags(), &where, "filter", command.AnyFilter, "only matching events, such as type = 'message' AND source = 'self'")
	return c
}

func popCommand(e *command.Env) *cobra.Command {
	var at target
	var s span
	var consumer string
	c := &cobra.Command{
		Use:   "pop",
		Short: "Acknowledge events for a consumer and print the next ones",
		Long: `Acknowledge every event up to an id for a consumer, and print the later ones that match
its filter, one JSON object a line. The id is that of the last processed event: events
that were printed and not acknowledged are printed again.`,
		Example: `  thread pop --thread ./t --consumer worker --last-event-id 0
  thread pop --thread ./t --consumer worker --last-event-id 42 --limit 10`,
		Args: command.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if consumer == "" {
				return command.Usage(c, "--consumer is missing")
			}
			if err := s.check(c); err != nil {
				return err
			}
			return at.with(c, e, func(d access.Conn, p access.Place) error {
				return pop(c, e, d, p, consumer, s)
			})
		},
	}
	at.flag(c)
	s.flags(c)
	command.TextFlag(c.Flags(), &consumer, "consumer", command.Consumer, "name of the consumer")
	return c
}

func pop(c *cobra.Command, e *command.Env, d access.Conn, p access.Place, consumer string, s span) error {
	in, err := d.Info(c.Context())
	if err != nil {
		return err
	}
	q := access.Query{After: s.after.value, Limit: int(s.limit.value)}
	i := slices.IndexFunc(in.Subscriptions, func(sub store.Subscription) bool { return sub.Consumer == consumer })
	if i < 0 {
		return access.Fault(p, store.ErrNoConsumer)
	}
	// What was processed is processed, whatever becomes of the rest.
	if err := d.Ack(c.Context(), consumer, q.After); err != nil {
		return err
	}
	if where := in.Subscriptions[i].Filter; where != nil {
		if q.Filter, err = parseFilter(c, *where); err != nil {
			return err
		}
	}
	return printEvents(c.Context(), e, d, q)
}

// printEvents prints a query, page by page.
func printEvents(ctx context.Context, e *command.Env, d access.Conn, q access.Query) error {
	for {
		events, more, err := d.Peek(ctx, q)
		if err != nil {
			return err
		}
		var b []byte
		for _, ev := range events {
			b = append(ev.AppendLine(b), '\n')
		}
		if _, err := e.Out.Write(b); err != nil {
			return nil // the Env keeps it and reports it at the end
		}
		if q.Limit -= len(events); !more || q.Limit <= 0 || len(events) == 0 {
			return nil
		}
		q.After = events[len(events)-1].ID
	}
}
