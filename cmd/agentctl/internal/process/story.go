package process

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func showCommand(e *command.Env) *cobra.Command {
	lines := int32(100)
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show the newest lines of an agent's log",
		Long: `Show the newest lines of an agent's log: logs/agent.log in its directory, or the same
lines in the shared database where several registries serve it. A line appears a few
milliseconds after it was logged.`,
		Example: `  agentctl log show alice
  agentctl log show alice --lines 1000 | grep WARN`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Agents().ReadAgentLog(c.Context(), &registry.ReadAgentLogRequest{AgentId: args[0], Lines: lines})
			if err != nil {
				return err
			}
			return e.Print(struct {
				AgentID string   `json:"agent_id"`
				Lines   []string `json:"lines"`
			}{args[0], append([]string{}, r.GetLines()...)}, args, func() error {
				for _, l := range r.GetLines() {
					fmt.Fprintln(e.Out, screen.Line(l))
				}
				return nil
			})
		},
	}
	command.NumberFlag(c, &lines, "lines", 1, 10_000, "maximum number of lines")
	return c
}
