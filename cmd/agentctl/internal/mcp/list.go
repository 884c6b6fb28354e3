package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// row is a server of an agent for programs.
type row struct {
	Name     string `json:"name"`
	AgentID  string `json:"agent_id"` // empty: no agent has started it
	State    string `json:"state"`
	Tools    int    `json:"tools"`
	Approved int    `json:"approved"`
	Calls    int64  `json:"calls"`
	Restarts int64  `json:"restarts"`
	What     string `json:"what"`
}

// stateStopped is the state of a server that starts with the next call.
const stateStopped = "stopped"

func listCommand(e *command.Env) *cobra.Command {
	var agent string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the servers of the home and their states",
		Long: `List the servers of the home, each for the agents that have started it. TOOLS is how many it
offers, and how many of them are approved where that is not all. CALLS and RESTARTS count
since the runner has started.`,
		Example: `  agentctl mcp list
  agentctl mcp list --agent alice --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := e.MustExist(c.Context(), agent); err != nil {
				return err
			}
			rows, err := rowsOf(c.Context(), e, agent)
			if err != nil {
				return err
			}
			t := screen.NewTable(e, "name", "agent", "state", "tools", "calls", "restarts", "what").Drop("restarts", "calls").
				None("no MCP servers; 'agentctl mcp add' adds one")
			return screen.List(t, rows, func(r row) []any {
				tools := fmt.Sprint(r.Tools)
				if r.Approved != r.Tools {
					tools = fmt.Sprintf("%d of %d", r.Approved, r.Tools)
				}
				return []any{r.Name, cmp.Or(r.AgentID, "-"), r.State, tools, r.Calls, r.Restarts, cmp.Or(r.What, "-")}
			})
		},
	}
	command.AgentFlag(c, &agent, "only this agent, with the servers that it has not started")
	return c
}

func rowsOf(ctx context.Context, e *command.Env, agent string) ([]row, error) {
	s, err := e.HomeSettings(ctx)
	if err != nil || len(s.Servers) == 0 {
		return []row{}, err
	}
	running, err := serversOf(ctx, e, agent)
	if err != nil {
		return nil, err
	}
	rows := []row{}
	for _, one := range s.Servers {
		tools, _, err := pins(ctx, e, one.Name)
		if err != nil {
			return nil, err
		}
		base := row{Name: one.Name, State: stateStopped, What: waiting(one.Name, tools)}
		for _, t := range tools {
			if t.State != stateGone {
				base.Tools++
			}
			if t.State == stateApproved {
				base.Approved++
			}
		}
		before := len(rows)
		for _, r := range running {
			if r.server.GetName() != one.Name {
				continue
			}
			next := base
			next.AgentID, next.State, next.Calls, next.Restarts = r.agent, command.Word(r.server.GetState(), "SERVER_STATE_", "unspecified"), r.server.GetCalls(), r.server.GetRestarts()
			next.What = cmp.Or(strings.TrimSpace(r.server.GetWhat()), base.What)
			rows = append(rows, next)
		}
		if len(rows) == before {
			rows = append(rows, base)
		}
	}
	return rows, nil
}

// started is a server of an agent.
type started struct {
	agent  string
	server *runner.Server
}

// serversOf are the servers of an agent, or those that agents have started.
func serversOf(ctx context.Context, e *command.Env, agent string) (out []started, err error) {
	ids := []string{agent}
	if agent == "" {
		agents, err := e.AllAgents(ctx)
		if err != nil {
			return nil, err
		}
		ids = ids[:0]
		for _, a := range agents {
			ids = append(ids, a.GetAgentId())
		}
	}
	tools := runner.NewToolServiceClient(e.Conn(command.Runner))
	for _, id := range ids {
		r, err := tools.ListServers(ctx, &runner.ListServersRequest{AgentId: id})
		if err != nil {
			return nil, err
		}
		for _, s := range r.GetServers() {
			if agent != "" || s.GetState() != runner.ServerState_SERVER_STATE_STOPPED || s.GetWhat() != "" || s.GetCalls() > 0 {
				out = append(out, started{id, s})
			}
		}
	}
	return out, nil
}

// waiting says which tools wait for the owner, and what to do; empty: none.
func waiting(server string, tools []tool) string {
	news, changed := 0, 0
	for _, t := range tools {
		switch t.State {
		case stateNew:
			news++
		case stateChanged:
			changed++
		}
	}
	var parts []string
	if news > 0 {
		parts = append(parts, fmt.Sprintf("%d new", news))
	}
	if changed > 0 {
		parts = append(parts, fmt.Sprintf("%d changed", changed))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: agentctl mcp approve %s", strings.Join(parts, ", "), server)
}
