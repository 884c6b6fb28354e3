package deadletter

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// outcome is what became of one letter.
type outcome struct {
	AgentID string `json:"agent_id"`
	ID      string `json:"id"`
	Result  string `json:"result"`
	InboxID int64  `json:"inbox_id,omitempty"` // of the message pushed again
}

type act func(ctx context.Context, e *command.Env, agent string, n name) (outcome, error)

// actCommand makes retry and drop, which differ only in what they do.
func actCommand(e *command.Env, c *cobra.Command, do act) *cobra.Command {
	var all bool
	c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return e.CompleteID(c, args, typed)
		}
		return e.Complete(offer)(c, args, typed)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		ids := args[1:]
		if all == (len(ids) > 0) {
			return command.Usage(c, "name dead letters, or give --all")
		}
		names := make([]name, len(ids))
		for i, id := range ids {
			var err error
			if names[i], err = parse(id); err != nil {
				return err
			}
		}
		if all {
			letters, err := collect(c.Context(), e, args[:1])
			if err != nil {
				return err
			}
			for _, l := range letters {
				n, err := parse(l.ID)
				if err != nil {
					return err
				}
				ids, names = append(ids, l.ID), append(names, n)
			}
		}
		return each(c.Context(), e, args[0], ids, names, do)
	}
	c.Flags().BoolVar(&all, "all", false, "all dead letters of the agent")
	return c
}

// each stops at the first failure; with --json nothing but one object may be on
// standard output, so the outcomes are printed at the end.
func each(ctx context.Context, e *command.Env, agent string, ids []string, names []name, do act) error {
	done := []outcome{}
	step, finish := screen.Progress(e, len(ids), "working")
	for i, n := range names {
		o, err := do(ctx, e, agent, n)
		if err != nil {
			finish()
			if f := fault.From(err); f.Reason == fault.TurnNotFound || f.Reason == fault.DeliveryNotFound {
				return fault.Wrap(fault.New(f.Code, f.Reason, fmt.Sprintf("agent '%s' has no dead letter %.80q", agent, ids[i]), "see 'agentctl dlq list "+agent+"'"), err)
			}
			return err
		}
		o.AgentID, o.ID = agent, ids[i]
		done = append(done, o)
		step()
	}
	finish()
	return e.Print(done, ids, func() error {
		for _, o := range done {
			if o.InboxID > 0 {
				fmt.Fprintf(e.Out, "%s %s as message %d\n", o.ID, o.Result, o.InboxID)
			} else {
				fmt.Fprintf(e.Out, "%s %s\n", o.ID, o.Result)
			}
		}
		if len(done) == 0 {
			e.Note("no dead letters")
		}
		return nil
	})
}

// offer completes the dead letters of an agent that are not named yet.
func offer(ctx context.Context, e *command.Env, args []string) (ids []string, err error) {
	letters, err := lettersOf(ctx, e, args[0])
	for _, l := range letters {
		if !slices.Contains(args, l.ID) {
			ids = append(ids, l.ID+"\t"+screen.Line(l.Cause))
		}
	}
	return ids, err
}

func retry(ctx context.Context, e *command.Env, agent string, n name) (outcome, error) {
	if n.thread == "" {
		r, err := e.Turns().RetryTurn(ctx, &registry.RetryTurnRequest{AgentId: agent, InboxId: n.event})
		return outcome{Result: "pushed again", InboxID: r.GetInboxId()}, err
	}
	_, err := e.Deliveries().RetryDelivery(ctx, &registry.RetryDeliveryRequest{AgentId: agent, ThreadId: n.thread, EventId: n.event})
	return outcome{Result: "will be sent again"}, err
}

func drop(ctx context.Context, e *command.Env, agent string, n name) (outcome, error) {
	var err error
	if n.thread == "" {
		_, err = e.Turns().DropTurn(ctx, &registry.DropTurnRequest{AgentId: agent, InboxId: n.event})
	} else {
		_, err = e.Deliveries().DropDelivery(ctx, &registry.DropDeliveryRequest{AgentId: agent, ThreadId: n.thread, EventId: n.event})
	}
	return outcome{Result: "dropped"}, err
}
