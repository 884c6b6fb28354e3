package threadtool

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool/access"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

func initCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "init PATH",
		Short: "Create a thread directory",
		Long: `Create a thread directory: events.db, events.jsonl, run/ and logs/. The directory may
exist already, but not as a thread.`,
		Example: `  thread init ./t`,
		Args:    command.Args("PATH"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error {
			p, err := place(c, e, args[0])
			if err != nil {
				return err
			}
			created, err := access.Create(c.Context(), e, p)
			if err != nil {
				return err
			}
			if !created {
				return fault.New(codes.AlreadyExists, fault.ThreadExists, p.Dir+" is a thread directory already", "remove it first to start again")
			}
			fmt.Fprintf(e.Out, "Initialized thread at %s\n", p.Dir)
			return nil
		},
	}
}

func subscribeCommand(e *command.Env) *cobra.Command {
	var at target
	var s store.Subscription
	var where string
	c := &cobra.Command{
		Use:   "subscribe",
		Short: "Add a consumer and the handler that reads for it",
		Long: `Add a consumer to a thread. Dispatch starts its handler with 'sh -c' when there are
unacknowledged events that match its filter. The handler reads with pop until no event is
left, and removes run/CONSUMER.lock.`,
		Example: `  thread subscribe --thread ./t --consumer worker --handler 'work.sh'
  thread subscribe --thread ./t --consumer mail --handler 'mail.sh' --filter "type = 'message'"`,
		Args: command.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case s.Consumer == "":
				return command.Usage(c, "--consumer is missing")
			case s.Handler == "":
				return command.Usage(c, "--handler is missing")
			}
			if _, err := parseFilter(c, where); err != nil {
				return err
			}
			if where != "" {
				s.Filter = &where
			}
			return at.with(c, e, func(d access.Conn, _ access.Place) error {
				if err := d.Subscribe(c.Context(), s); err != nil {
					return err
				}
				fmt.Fprintf(e.Out, "Subscribed consumer '%s'\n", s.Consumer)
				return nil
			})
		},
	}
	at.flag(c)
	command.TextFlag(c.Flags(), &s.Consumer, "consumer", command.AnyConsumer, "name of the consumer")
	command.TextFlag(c.Flags(), &s.Handler, "handler", command.Script, "command that dispatch starts")
	command.TextFlag(c.Flags(), &where, "filter", command.AnyFilter, "only matching events, such as type = 'message' AND source = 'self'")
	return c
}

func unsubscribeCommand(e *command.Env) *cobra.Command {
	var at target
	var consumer string
	c := &cobra.Command{
		Use:     "unsubscribe",
		Short:   "Remove a consumer",
		Long:    `Remove a consumer. Its read position is kept, in case it subscribes again.`,
		Example: `  thread unsubscribe --thread ./t --consumer worker`,
		Args:    command.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if consumer == "" {
				return command.Usage(c, "--consumer is missing")
			}
			return at.with(c, e, func(d access.Conn, _ access.Place) error {
				if err := d.Unsubscribe(c.Context(), consumer); err != nil {
					return err
				}
				fmt.Fprintf(e.Out, "Unsubscribed consumer '%s'\n", consumer)
				return nil
			})
		},
	}
	at.flag(c)
	command.TextFlag(c.Flags(), &consumer, "consumer", command.AnyConsumer, "name of the consumer")
	return c
}

// summary is info for programs, in the tool's own words.
type summary struct {
	EventCount    int64      `json:"event_count"`
	Subscriptions []consumer `json:"subscriptions"`
}

type consumer struct {
	ConsumerID  string  `json:"consumer_id"`
	HandlerCmd  string  `json:"handler_cmd"`
	Filter      *string `json:"filter"`
	LastAckedID int64   `json:"last_acked_id"`
	UpdatedAt   *string `json:"updated_at"`
}

func infoCommand(e *command.Env) *cobra.Command {
	var at target
	c := &cobra.Command{
		Use:   "info",
		Short: "Show the number of events and the position of each consumer",
		Long:  `Show the number of events of a thread, and its consumers with their read positions.`,
		Example: `  thread info --thread ./t
  thread info --thread ./t --json | jq '.subscriptions[].last_acked_id'`,
		Args: command.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			return at.with(c, e, func(d access.Conn, p access.Place) error {
				in, err := d.Info(c.Context())
				if err != nil {
					return err
				}
				return printInfo(e, p.Dir, in)
			})
		},
	}
	at.flag(c)
	c.Flags().BoolVar(&e.Flags.JSON, "json", false, "print JSON")
	return c
}

func printInfo(e *command.Env, dir string, in store.Info) error {
	out := summary{EventCount: in.Count, Subscriptions: []consumer{}}
	for _, s := range in.Subscriptions {
		one := consumer{ConsumerID: s.Consumer, HandlerCmd: s.Handler, Filter: s.Filter, LastAckedID: s.Acked}
		if s.UpdatedAt != "" {
			one.UpdatedAt = &s.UpdatedAt
		}
		out.Subscriptions = append(out.Subscriptions, one)
	}
	if e.Flags.JSON {
		return e.PrintJSON(out)
	}
	fmt.Fprintf(e.Out, "Thread: %s\nEvents: %d\nSubscriptions: %d\n", dir, out.EventCount, len(out.Subscriptions))
	for _, s := range in.Subscriptions {
		where := "(none)"
		if s.Filter != nil && *s.Filter != "" {
			where = *s.Filter
		}
		fmt.Fprintf(e.Out, "  - %s\n    handler: %s\n    filter:  %s\n    last_acked_id: %d\n    updated_at: %s\n",
			s.Consumer, s.Handler, where, s.Acked, cmp.Or(s.UpdatedAt, "(never)"))
	}
	return nil
}

func dispatchCommand(e *command.Env) *cobra.Command {
	var at target
	c := &cobra.Command{
		Use:   "dispatch",
		Short: "Start the handlers of all consumers with unread events",
		Long: `Start the handler of each consumer with unread events, unless run/CONSUMER.lock shows
that it was started already, and do not wait for it. A consumer that cannot be dispatched
is reported after the others were dispatched.`,
		Example: `  thread dispatch --thread ./t`,
		Args:    command.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			var due []store.Subscription
			var problems []error
			var dir string
			err := at.with(c, e, func(d access.Conn, p access.Place) (err error) {
				dir = p.Dir
				due, problems, err = dueSubscriptions(c.Context(), d)
				return err
			})
			if err != nil {
				return err
			}
			return start(dir, due, problems) // with the thread closed: handlers open it
		},
	}
	at.flag(c)
	return c
}

func start(dir string, due []store.Subscription, problems []error) error {
	log := logOf(dir)
	for _, s := range due {
		started, err := startHandler(dir, s)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("consumer '%s': %w", s.Consumer, err))
		case started:
			log.write(info, "dispatch: consumer=%s spawned handler_cmd=\"%s\"", s.Consumer, s.Handler)
		default:
			log.write(info, "dispatch: consumer=%s skipped (lock held)", s.Consumer)
		}
	}
	for _, err := range problems {
		log.write(warn, "dispatch: %v", err)
	}
	if len(problems) == 0 {
		return nil
	}
	what := strings.ReplaceAll(errors.Join(problems...).Error(), "\n", "; ")
	return fault.Usage(what, "the others were dispatched; subscribe it again with a valid handler and filter")
}
