package approvals

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// watching is one call of the command.
type watching struct {
	env   *command.Env
	agent string
	left  int               // lines to show; 0: no bound
	told  map[string]string // the last state shown, by question
}

func watchCommand(e *command.Env) *cobra.Command {
	w := &watching{env: e, told: map[string]string{}}
	c := &cobra.Command{
		Use:   "watch",
		Short: "Show approvals when they are requested and answered",
		Long: `Show the waiting approvals, then each one when it is requested and when it is answered,
until Ctrl-C. Answer in a second terminal, with the command that is shown. With --json
each is one line.`,
		Example: `  agentctl approvals watch
  agentctl approvals watch --json | jq -r 'select(.state == "pending") | .command'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := e.MustExist(c.Context(), w.agent); err != nil {
				return err
			}
			return w.run(c.Context())
		},
	}
	command.AgentFlag(c, &w.agent, "only this agent")
	command.NumberFlag(c, &w.left, "count", 0, math.MaxInt, "exit after this many; 0: at Ctrl-C")
	return c
}

// run watches until the person interrupts it, which is its normal end, and goes on
// when the registry was away.
func (w *watching) run(ctx context.Context) error {
	// A stream says nothing while nobody asks; this call tells whether somebody is there.
	if _, err := w.env.Approvals().ListApprovals(ctx, &registry.ListApprovalsRequest{PageSize: 1}); err != nil {
		return err
	}
	return command.Follow(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[registry.WatchApprovalsResponse], error) {
		return w.env.Approvals().WatchApprovals(ctx, &registry.WatchApprovalsRequest{})
	}, func(r *registry.WatchApprovalsResponse) error { return w.show(of(r.GetApproval())) })
}

func (w *watching) show(q question) error {
	if w.agent != "" && q.AgentID != w.agent || w.told[q.ID] == q.State { // a stream that began again tells what waits again
		return nil
	}
	w.told[q.ID] = q.State
	out := w.env.Out
	printed, err := w.env.Item(q, q.ID)
	switch {
	case err != nil:
		return err
	case printed:
	case q.State == "pending":
		fmt.Fprintf(out, "%s asks until %s (%s): %s\n", q.AgentID, q.Expires.Local().Format(time.TimeOnly), q.Reason, screen.Line(q.Command))
		fmt.Fprintf(out, "  agentctl approvals approve %s\n", q.ID)
		if len(q.Always) > 0 {
			fmt.Fprintf(out, "  with --always it also allows: %s\n", screen.Line(strings.Join(q.Always, ", ")))
		}
	default:
		fmt.Fprintf(out, "%s %s: %s\n", q.ID, q.State, screen.Line(q.Command))
	}
	if w.left--; w.left == 0 {
		return command.ErrEnough
	}
	return nil
}
