// Package turn implements the commands that show what happened to messages: `agentctl
// explain` shows the complete history of one, `turns` lists them with their fates.
//
// explain marks what is not known: a tool whose result was lost is "in doubt", a reply
// that may have been sent twice is "maybe sent twice", and a wait shows until when.
package turn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Commands answers the commands of this package.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{explainCommand(e), turnsCommand(e)}
}

// account is a turn for programs; times are null until they come.
type account struct {
	AgentID        string    `json:"agent_id"`
	InboxID        int64     `json:"inbox_id"`
	RunID          string    `json:"run_id"`
	ThreadID       string    `json:"thread_id"`
	Source         string    `json:"source"`
	State          string    `json:"state"`
	Fate           *string   `json:"fate"`
	Error          string    `json:"error"`
	ErrorAttempts  int32     `json:"error_attempts"`
	CrashAttempts  int32     `json:"crash_attempts"`
	QueuedAt       *string   `json:"queued_at"`
	ClaimedAt      *string   `json:"claimed_at"`
	FinishedAt     *string   `json:"finished_at"`
	NextAt         *string   `json:"next_at"`
	InboundEventID int64     `json:"inbound_event_id"`
	ReplyEventID   int64     `json:"reply_event_id"`
	ErrorEventID   int64     `json:"error_event_id"`
	Resolved       string    `json:"resolved"`
	Usage          usage     `json:"usage"`
	Leader         string    `json:"leader,omitempty"` // run that answers it too
	Joined         []Member  `json:"joined,omitempty"` // whom it answers too
	Attempts       []attempt `json:"attempts,omitempty"`
	Steps          []step    `json:"steps,omitempty"`
	Waits          []wait    `json:"waits,omitempty"`     // of its calls, for people
	Processes      []process `json:"processes,omitempty"` // that its calls started
	Delivery       *delivery `json:"delivery,omitempty"`
	// Earlier are the deliveries of what was sent before the reply.
	Earlier []delivery `json:"earlier_deliveries,omitempty"`
	Changes []change   `json:"changes,omitempty"` // with --diff
}

// attempt is one that ended without an answer.
type attempt struct {
	N       int32   `json:"n"` // those that are missing are not kept
	At      *string `json:"at"`
	Class   string  `json:"class"`
	Error   string  `json:"error"`
	Counted bool    `json:"counted"`
	WaitMS  int64   `json:"wait_ms"`
}

type usage struct {
	InputTokens       int64 `json:"input_tokens"`
	OutputTokens      int64 `json:"output_tokens"`
	CachedInputTokens int64 `json:"cached_input_tokens"`
	CacheWriteTokens  int64 `json:"cache_write_tokens"`
	ReasoningTokens   int64 `json:"reasoning_tokens"`
}

func usageOf(u *registry.Usage) usage {
	return usage{u.GetInput(), u.GetOutput(), u.GetCachedInput(), u.GetCacheWrite(), u.GetReasoning()}
}

func accountOf(t *registry.Turn) account {
	a := account{
		AgentID: t.GetAgentId(), InboxID: t.GetInboxId(), RunID: t.GetKey(), ThreadID: t.GetThreadId(), Source: t.GetSource(),
		State: command.Word(t.GetState(), "TURN_STATE_", "unknown"), Error: t.GetError(), ErrorAttempts: t.GetErrorAttempts(), CrashAttempts: t.GetCrashAttempts(),
		QueuedAt: command.Stamp(t.GetQueuedAt()), ClaimedAt: command.Stamp(t.GetClaimedAt()), FinishedAt: command.Stamp(t.GetFinishedAt()), NextAt: command.Stamp(t.GetNextAt()),
		InboundEventID: t.GetInboundEventId(), ReplyEventID: t.GetReplyEventId(), ErrorEventID: t.GetErrorEventId(), Resolved: t.GetResolved(),
		Usage: usageOf(t.GetUsage()),
	}
	if f := message.FateName(t.GetFate()); f != "" {
		a.Fate = &f
	}
	return a
}

// when is the zero time for an absent timestamp.
func when(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func turnsCommand(e *command.Env) *cobra.Command {
	fate := command.Choice{Value: "all", Values: []string{"all", "replied", "silent", "merged", "aborted", "dead", "not-a-message"}}
	limit := 20
	c := &cobra.Command{
		Use:   "turns ID",
		Short: "List the messages of an agent and their fates",
		Long:  `List the messages that an agent received, newest first, with the fate of each.`,
		Example: `  agentctl turns alice
  agentctl turns alice --fate dead --json`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Turns().ListTurns(c.Context(), &registry.ListTurnsRequest{AgentId: args[0], Fate: registry.Fate(registry.Fate_value["FATE_"+strings.ToUpper(strings.ReplaceAll(fate.Value, "-", "_"))]), PageSize: int32(limit), WithUsage: true})
			if err != nil {
				return err
			}
			open := waitingTurns(c.Context(), e, r.GetTurns())
			all := []account{}
			for _, t := range r.GetTurns() {
				all = append(all, accountOf(cmp.Or(open[t.GetInboxId()], t)))
			}
			now := time.Now()
			t := screen.NewTable(e, "message", "age", "fate", "took", "tokens", "source", "thread", "run", "error").Wide("run").
				Drop("tokens", "took", "source", "thread").Data(all).None("no messages")
			return screen.List(t, r.GetTurns(), func(t *registry.Turn) []any {
				state, problem, thread := fateOrState(t), t.GetError(), t.GetThreadId()
				if w := open[t.GetInboxId()]; w != nil {
					state, problem, thread = command.Word(w.GetState(), "TURN_STATE_", "unknown"), message.Waiting(w, now), w.GetThreadId()
				}
				return []any{t.GetInboxId(), screen.Age(now, when(t.GetQueuedAt())), state, took(t), tokens(t.GetUsage()), t.GetSource(), thread, t.GetKey(), problem}
			})
		},
	}
	c.Flags().Var(&fate, "fate", "only messages with this fate")
	command.NumberFlag(c, &limit, "limit", 1, 1000, "maximum number of messages")
	return c
}

// maxOpen is how many of the messages without a fate are asked about, the oldest ones: a
// list is made from the inbox alone, which knows their fates and not their tries.
const maxOpen = 16

// waitingTurns are the turns of a list, newest first, that wait for their next try, by
// message.
func waitingTurns(ctx context.Context, e *command.Env, list []*registry.Turn) map[int64]*registry.Turn {
	out := map[int64]*registry.Turn{}
	asked := 0
	for _, t := range slices.Backward(list) {
		if t.GetState() == registry.TurnState_TURN_STATE_DONE {
			continue
		}
		if asked++; asked > maxOpen {
			break
		}
		r, err := e.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: t.GetAgentId(), InboxId: t.GetInboxId()})
		if err != nil { // the list is what was asked for
			break
		}
		if r.GetTurn().GetState() == registry.TurnState_TURN_STATE_WAITING {
			out[t.GetInboxId()] = r.GetTurn()
		}
	}
	return out
}

func fateOrState(t *registry.Turn) string {
	if f := message.FateName(t.GetFate()); f != "" {
		if t.GetResolved() != "" {
			f += ", " + t.GetResolved()
		}
		return f
	}
	return command.Word(t.GetState(), "TURN_STATE_", "unknown")
}

func took(t *registry.Turn) string {
	if t.GetFinishedAt() == nil || t.GetQueuedAt() == nil {
		return "-"
	}
	return short(t.GetFinishedAt().AsTime().Sub(t.GetQueuedAt().AsTime()))
}

// short is a duration with at most three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "less than 1ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func tokens(u *registry.Usage) string {
	if u.GetInput() == 0 && u.GetOutput() == 0 {
		return "-"
	}
	return fmt.Sprintf("%d+%d", u.GetInput(), u.GetOutput())
}
