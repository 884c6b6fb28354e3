package agent

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// forceTimeout bounds a removal that waits for workers, unless --timeout says otherwise.
const forceTimeout = time.Minute

// Remove is the command rm, which stands alone and below agent.
func Remove(e *command.Env) *cobra.Command {
	var yes, force bool
	c := &cobra.Command{
		Use:   "rm ID",
		Short: "Delete an agent and all its data",
		Long: `Delete an agent and all its data: messages and replies, the journal of its turns,
memory, settings, workdir/, logs, approvals and counters. It can only be restored from a
backup that you made ('agentctl backup').

The agent must be stopped and not held by any worker. --force stops it, gives its workers
a few seconds to finish, and then ends their leases, with the tools that still run. Its
unanswered messages and unsent replies are deleted too. Not deleted are backups, the
audit log, messages already sent to other agents and people, and the log of the services. Its name becomes free: a new
agent with that name knows nothing of the old one.`,
		Example: `  agentctl rm alice
  agentctl agent rm alice --yes
  agentctl rm alice --force --yes --timeout 2m`,
		RunE: func(c *cobra.Command, args []string) error {
			if !yes {
				if err := sure(c, e, args[0]); err != nil {
					return err
				}
			}
			ctx, cancel := c.Context(), func() {}
			if force && !c.Flags().Changed("timeout") {
				ctx, cancel = context.WithTimeout(ctx, forceTimeout)
			}
			defer cancel()
			r, err := e.Agents().DeleteAgent(ctx, &registry.DeleteAgentRequest{AgentId: args[0], Force: force})
			if err != nil {
				return err
			}
			return e.Show(struct {
				AgentID string `json:"agent_id"`
				Removed bool   `json:"removed"`
				Stopped bool   `json:"stopped"`
			}{args[0], true, r.GetStopped()}, args[0], "Agent '%s' removed", args[0])
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	c.Flags().BoolVar(&force, "force", false, "stop the agent first, and end the work on it")
	return c
}

// sure asks the person at the terminal to type the name.
func sure(c *cobra.Command, e *command.Env, id string) error {
	in, out := e.Terminal()
	if in == nil {
		return command.Unasked(c)
	}
	if _, err := e.Agents().GetAgent(c.Context(), &registry.GetAgentRequest{AgentId: id}); err != nil {
		return err // before anybody types
	}
	fmt.Fprintf(out, "Remove agent '%s' with its memory and all conversations? Type its name: ", id)
	line, _ := bufio.NewReader(in).ReadString('\n')
	if strings.TrimSpace(line) != id {
		return fault.New(codes.Canceled, fault.InvalidArgument, "nothing was removed", "type the name of the agent, or use --yes")
	}
	return nil
}
