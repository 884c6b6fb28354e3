package turn

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/lease/runlock"
	"github.com/theclaw/agents/internal/rpc/runs"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// step is a journal row for programs.
type step struct {
	Seq      int32  `json:"seq"`
	Kind     string `json:"kind"`
	Key      string `json:"key"`
	Name     string `json:"name"`
	State    string `json:"state"`
	Class    string `json:"class,omitempty"`
	CallID   string `json:"call_id,omitempty"`
	Summary  string `json:"summary,omitempty"`
	IsError  bool   `json:"is_error,omitempty"`
	External bool   `json:"external,omitempty"`
	// Together are the keys of the calls that ran at the same time.
	Together []string `json:"together,omitempty"`
	// Recovery is what a crash of the runner made of the call, or would make of it now: run_again, asks_again, in_doubt.
	Recovery string `json:"recovery,omitempty"`
	// CompleteOutput is the file with it in the working directory, where the result is shortened.
	CompleteOutput string  `json:"complete_output,omitempty"`
	Arguments      string  `json:"arguments,omitempty"`
	Result         string  `json:"result,omitempty"`
	DurationMS     int64   `json:"duration_ms"`
	Usage          *usage  `json:"usage,omitempty"`
	RecordedAt     *string `json:"recorded_at"`
}

type delivery struct {
	ThreadID       string  `json:"thread_id"`
	EventID        int64   `json:"event_id"`
	State          string  `json:"state"`
	Attempts       int32   `json:"attempts"`
	Channel        string  `json:"channel"`
	ProviderID     string  `json:"provider_id"`
	Parts          int32   `json:"parts,omitempty"` // that were sent, of a message in parts
	Error          string  `json:"error"`
	MaybeDuplicate bool    `json:"maybe_duplicate"`
	NextAt         *string `json:"next_at"`
	CreatedAt      *string `json:"created_at"`
	UpdatedAt      *string `json:"updated_at"`
}

func explainCommand(e *command.Env) *cobra.Command {
	var diff bool
	c := &cobra.Command{
		Use:   "explain ID MESSAGE",
		Short: "Show what happened to one message",
		Long: `Show the history of one message: when it arrived, which runner processed it, each model
call and tool, whom a call waited for and how long, the processes that it left in the
background, what failed, the reply, and its delivery. For messages that were answered
together it shows which one has the reply and which were merged into it. MESSAGE is the
id that send printed, or a run id.

--diff adds how tools have changed files of the working directory: what write, edit and
apply_patch did, for 7 days. What commands changed is not recorded.`,
		Example: `  agentctl explain alice 17
  agentctl explain alice 17 --diff
  agentctl explain alice 17 --json | jq .steps
  agentctl explain alice 17 --json | jq '.waits, .processes'`,
		RunE: func(c *cobra.Command, args []string) error {
			inbox, run, err := command.MessageID(args[1])
			if err != nil {
				return err
			}
			r, err := runs.GetTurn(c.Context(), e.Turns(), &registry.GetTurnRequest{AgentId: args[0], InboxId: inbox, Key: run})
			if err != nil {
				return err
			}
			began, err := begun(c.Context(), e, r.GetTurn())
			if err != nil {
				return err
			}
			said, err := sent(c.Context(), e, r.GetTurn())
			if err != nil {
				return err
			}
			a, leftOut := full(r.GetTurn(), began), int32(0)
			for _, d := range said {
				a.Earlier = append(a.Earlier, *deliveryOf(d))
			}
			if diff {
				if a.Changes, leftOut, err = changesOf(c, e, r.GetTurn()); err != nil {
					return err
				}
			}
			return e.Print(a, []string{r.GetTurn().GetKey()}, func() error {
				for _, l := range History(r.GetTurn(), began, said...) {
					fmt.Fprintln(e.Out, l.render(e))
				}
				if err := explainAgent(c, e, r.GetTurn()); err != nil || !diff {
					return err
				}
				showChanges(e, a.Changes, leftOut)
				return nil
			})
		},
	}
	c.Flags().BoolVar(&diff, "diff", false, "also how tools have changed files")
	return c
}

// explainAgent adds why no runner works on a message, where its agent is the reason.
func explainAgent(c *cobra.Command, e *command.Env, t *registry.Turn) error {
	if t.GetState() == registry.TurnState_TURN_STATE_DONE {
		return nil
	}
	r, err := e.Agents().GetAgentStatus(c.Context(), &registry.GetAgentStatusRequest{AgentId: t.GetAgentId()})
	if err != nil {
		return err
	}
	if runlock.Blocks(r.GetHolder()) { // the lock of another program keeps runners away
		fmt.Fprintln(e.Out, Entry{Text: "no runner takes the agent: " + r.GetHolder() + "; it continues when that process ends", Mood: Bad}.render(e))
	}
	if r.GetAgent().GetSetAside() != nil {
		fmt.Fprintln(e.Out, Entry{Text: "its agent is " + r.GetAgent().GetProblem(), Mood: Careful}.render(e))
	}
	if ahead := message.Ahead(c.Context(), e, t); ahead != nil {
		if what := message.WaitOf(t, ahead, time.Now()).String(); what != "" {
			fmt.Fprintln(e.Out, Entry{Text: what, Mood: Careful}.render(e))
		}
	}
	return nil
}

func full(t *registry.Turn, began Begun) account {
	a := accountOf(t)
	a.Steps, a.Leader, a.Waits, a.Processes = []step{}, t.GetLeader(), began.waits, began.processes
	group := together(t.GetSteps())
	again := ranAgain(t, group)
	for _, f := range t.GetAttempts() {
		a.Attempts = append(a.Attempts, attempt{f.GetN(), command.Stamp(f.GetAt()), f.GetClass(), f.GetError(), f.GetCounted(), f.GetWait().AsDuration().Milliseconds()})
	}
	for _, s := range t.GetSteps() {
		a.Joined = append(a.Joined, JoinedOf(s)...)
		row := step{
			Seq: s.GetSeq(), Kind: command.Word(s.GetKind(), "STEP_KIND_", "unknown"), Key: s.GetKey(), Name: s.GetName(), State: command.Word(s.GetState(), "STEP_STATE_", "unknown"),
			Class: command.Word(s.GetClass(), "TOOL_CLASS_", ""), CallID: s.GetCallId(), Summary: s.GetSummary(), IsError: s.GetIsError(), External: s.GetExternal(), Arguments: s.GetArguments(), Result: string(s.GetResult()),
			DurationMS: s.GetDuration().AsDuration().Milliseconds(), RecordedAt: command.Stamp(s.GetRecordedAt()),
			Together: group[s.GetKey()], Recovery: recovery(s, again[s.GetKey()]),
		}
		if s.GetKind() == registry.StepKind_STEP_KIND_TOOL {
			row.CompleteOutput, _ = completeOutput(s.GetResult())
		}
		if s.GetUsage() != nil {
			u := usageOf(s.GetUsage())
			row.Usage = &u
		}
		a.Steps = append(a.Steps, row)
	}
	if d := t.GetDelivery(); d != nil {
		a.Delivery = deliveryOf(d)
	}
	return a
}

func deliveryOf(d *registry.Delivery) *delivery {
	return &delivery{
		ThreadID: d.GetThreadId(), EventID: d.GetEventId(), State: command.Word(d.GetState(), "DELIVERY_STATE_", "none"), Attempts: d.GetAttempts(),
		Channel: d.GetChannel(), ProviderID: d.GetProviderId(), Parts: d.GetParts(), Error: d.GetError(), MaybeDuplicate: d.GetMaybeDuplicate(),
		NextAt: command.Stamp(d.GetNextAt()), CreatedAt: command.Stamp(d.GetCreatedAt()), UpdatedAt: command.Stamp(d.GetUpdatedAt()),
	}
}

// maxSent bounds the messages of one turn whose deliveries are shown.
const maxSent = 1000

// sent are the deliveries of what a turn sent to its peer before its end, in order: of what the agent said in the
// conversation from the message on, until the turn had its fate.
func sent(ctx context.Context, e *command.Env, t *registry.Turn) (out []*registry.Delivery, err error) {
	if SentMessages(t) == 0 || t.GetThreadId() == "" {
		return nil, nil
	}
	r, err := e.Deliveries().ListDeliveries(ctx, &registry.ListDeliveriesRequest{AgentId: t.GetAgentId(), ThreadId: t.GetThreadId(), AfterEventId: t.GetInboundEventId(), PageSize: maxSent})
	if err != nil {
		return nil, err
	}
	for _, d := range r.GetDeliveries() {
		if t.GetFinishedAt() != nil && when(d.GetCreatedAt()).After(when(t.GetFinishedAt())) {
			break
		}
		if d.GetEventId() != t.GetReplyEventId() {
			out = append(out, d)
		}
	}
	return out, nil
}
