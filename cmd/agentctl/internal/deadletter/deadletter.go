// Package deadletter implements the command `agentctl dlq`: the messages that no turn
// could finish and the replies that no channel accepted, and what can be done about
// them.
//
// A dead letter is named t:<inbox id> (a turn) or d:<thread>:<event id> (a delivery)
// within its agent.
package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// letter is a dead letter for programs.
type letter struct {
	AgentID  string  `json:"agent_id"`
	ID       string  `json:"id"`
	Kind     string  `json:"kind"`
	ThreadID string  `json:"thread_id"`
	EventID  int64   `json:"event_id"`
	Attempts int32   `json:"attempts"`
	Cause    string  `json:"cause"`
	DiedAt   *string `json:"died_at"`
	AgeS     int64   `json:"age_seconds"`

	died time.Time
}

// name is a parsed id of a letter: a turn when thread is empty.
type name struct {
	thread string
	event  int64
}

func parse(id string) (name, error) {
	bad := fault.Usage(fmt.Sprintf("%.80q does not name a dead letter", id), "use t:17 or d:threads/peers/cli-cli:4, as 'agentctl dlq list' shows them")
	kind, rest, _ := strings.Cut(id, ":")
	var n name
	switch kind {
	case "t":
	case "d":
		i := strings.LastIndexByte(rest, ':')
		if i < 0 || layout.ValidThread(rest[:i]) != nil {
			return n, bad
		}
		n.thread, rest = rest[:i], rest[i+1:]
	default:
		return n, bad
	}
	event, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || event <= 0 {
		return n, bad
	}
	n.event = event
	return n, nil
}

// Command answers the command dlq.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "dlq",
		Short: "List, retry and drop dead letters",
		Example: `  agentctl dlq list
  agentctl dlq retry alice t:17`,
	}, listCommand(e), actCommand(e, &cobra.Command{
		Use:   "retry ID [LETTER...]",
		Short: "Retry dead letters",
		Long: `Retry dead letters: a message is put into the inbox again, a reply is sent again with
the same key.`,
		Example: `  agentctl dlq retry alice t:17
  agentctl dlq retry alice d:threads/peers/cli-cli:4
  agentctl dlq retry alice --all`,
	}, retry), actCommand(e, &cobra.Command{
		Use:   "drop ID [LETTER...]",
		Short: "Remove dead letters from the list permanently",
		Long:  `Remove dead letters from the list permanently. Their events and error records are kept.`,
		Example: `  agentctl dlq drop alice t:17
  agentctl dlq drop alice --all`,
	}, drop))
}

func listCommand(e *command.Env) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "list [ID]",
		Short: "List dead letters with their cause and age",
		Long:  `List the dead letters of one agent, or of all agents, the newest first.`,
		Example: `  agentctl dlq list
  agentctl dlq list alice --json`,
		RunE: func(c *cobra.Command, args []string) error {
			if all && len(args) == 1 {
				return command.Usage(c, "ID and --all exclude each other")
			}
			letters, err := collect(c.Context(), e, args)
			if err != nil {
				return err
			}
			now := time.Now()
			t := screen.NewTable(e, "agent", "id", "age", "tries", "thread", "cause").Wide("thread").Names(0, 1)
			return screen.List(t.None("no dead letters"), letters, func(l letter) []any {
				return []any{l.AgentID, l.ID, screen.Age(now, l.died), l.Attempts, l.ThreadID, l.Cause}
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "dead letters of all agents (default without ID)")
	return c
}

// collect reads the letters of the agents named, or of all that can be read.
func collect(ctx context.Context, e *command.Env, ids []string) ([]letter, error) {
	ids, err := e.Readable(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := []letter{}
	step, done := screen.Progress(e, len(ids), "asking")
	defer done()
	for _, id := range ids {
		of, err := lettersOf(ctx, e, id)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
		step()
	}
	slices.SortStableFunc(all, func(a, b letter) int { return cmp.Compare(b.died.UnixNano(), a.died.UnixNano()) })
	return all, nil
}

func lettersOf(ctx context.Context, e *command.Env, id string) ([]letter, error) {
	turns, err := command.Pages(func(token string) ([]*registry.Turn, string, error) {
		r, err := e.Turns().ListTurns(ctx, &registry.ListTurnsRequest{AgentId: id, Fate: registry.Fate_FATE_DEAD, Unresolved: true, PageToken: token})
		return r.GetTurns(), r.GetNextPageToken(), err
	})
	if err != nil {
		return nil, err
	}
	deliveries, err := command.Pages(func(token string) ([]*registry.Delivery, string, error) {
		r, err := e.Deliveries().ListDeliveries(ctx, &registry.ListDeliveriesRequest{AgentId: id, State: registry.DeliveryState_DELIVERY_STATE_DEAD, PageToken: token})
		return r.GetDeliveries(), r.GetNextPageToken(), err
	})
	if err != nil {
		return nil, err
	}
	var all []letter
	for _, t := range turns {
		l := letter{
			AgentID: id, ID: fmt.Sprintf("t:%d", t.GetInboxId()), Kind: "turn", ThreadID: t.GetThreadId(), EventID: t.GetInboxId(),
			Attempts: max(t.GetErrorAttempts(), t.GetCrashAttempts()), Cause: t.GetError(),
		}
		if l.Attempts == 0 {
			l.Attempts = free(ctx, e, id, t.GetInboxId())
		}
		if at := t.GetFinishedAt(); at != nil {
			l.at(at.AsTime())
		}
		all = append(all, l)
	}
	for _, d := range deliveries {
		l := letter{
			AgentID: id, ID: fmt.Sprintf("d:%s:%d", d.GetThreadId(), d.GetEventId()), Kind: "delivery", ThreadID: d.GetThreadId(),
			EventID: d.GetEventId(), Attempts: d.GetAttempts(), Cause: d.GetError(),
		}
		if at := d.GetUpdatedAt(); at != nil {
			l.at(at.AsTime())
		}
		all = append(all, l)
	}
	return all, nil
}

// free counts the attempts of a message that died without spending a try, as with a key
// that was refused; the account of the message has them.
func free(ctx context.Context, e *command.Env, id string, inbox int64) int32 {
	n := int32(0) // as of a message that was refused before a try
	if r, err := e.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: id, InboxId: inbox}); err == nil {
		for _, a := range r.GetTurn().GetAttempts() {
			n = max(n, a.GetN())
		}
	}
	return n
}

func (l *letter) at(t time.Time) {
	stamp := thread.Stamp(t)
	l.died, l.DiedAt, l.AgeS = t, &stamp, int64(max(0, time.Since(t)).Seconds())
}
