package run

import (
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

func cancelCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID MESSAGE",
		Short: "Withdraw a message that has not been started",
		Long: `Withdraw a message that waits in the inbox: its fate is aborted. Use 'agentctl run abort'
for a message whose run has started. MESSAGE is the id that 'agentctl send' printed.`,
		Example: `  agentctl cancel alice 17`,
		RunE: func(c *cobra.Command, args []string) error {
			inbox, run, err := command.MessageID(args[1])
			if err != nil {
				return err
			}
			r, err := e.Turns().GetTurn(c.Context(), &registry.GetTurnRequest{AgentId: args[0], InboxId: inbox, Key: run})
			if err != nil {
				return err
			}
			t, id := r.GetTurn(), r.GetTurn().GetInboxId()
			switch t.GetState() {
			case registry.TurnState_TURN_STATE_DONE:
				return fault.New(codes.FailedPrecondition, fault.RunNotFound, fmt.Sprintf("message %d is already finished: %s", id, message.FateName(t.GetFate())),
					fmt.Sprintf("see 'agentctl explain %s %d'", args[0], id))
			case registry.TurnState_TURN_STATE_CLAIMED:
				return fault.New(codes.FailedPrecondition, fault.RunNotFound, fmt.Sprintf("message %d has begun", id),
					fmt.Sprintf("end it with 'agentctl run abort %s %s'", args[0], t.GetKey()))
			default:
			}
			if _, err := e.RunnerService().AbortRun(c.Context(), &runner.AbortRunRequest{AgentId: args[0], RunId: t.GetKey()}); err != nil {
				return err
			}
			return done(e, t.GetKey(), fmt.Sprintf("message %d is aborted", id))
		},
	}
}
