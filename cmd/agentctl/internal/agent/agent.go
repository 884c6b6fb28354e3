// Package agent owns the commands for the life of an agent: init, start, stop,
// status, list, bootstrap and rm. The words of their answers are those of the older
// agent tool, which scripts know.
package agent

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Commands answers the commands of this package.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{initCommand(e), startCommand(e), stopCommand(e), statusCommand(e), listCommand(e), bootstrapCommand(e), Remove(e)}
}

const (
	kindUser   = "user"
	kindSystem = "system"
)

// kindName is the word for a kind; a broken agent has none.
func kindName(a *registry.Agent) string {
	switch {
	case a.GetKind() == registry.AgentKind_AGENT_KIND_SYSTEM:
		return kindSystem
	case a.GetKind() == registry.AgentKind_AGENT_KIND_USER || a.GetHealth() != registry.AgentHealth_AGENT_HEALTH_FAILED:
		return kindUser
	}
	return ""
}

// healthName is the word for a health.
func healthName(h registry.AgentHealth) string {
	switch h {
	case registry.AgentHealth_AGENT_HEALTH_DEGRADED:
		return "degraded"
	case registry.AgentHealth_AGENT_HEALTH_FAILED:
		return "failed"
	default:
		return "ok"
	}
}

func initCommand(e *command.Env) *cobra.Command {
	kind := command.Choice{Value: kindUser, Values: []string{kindUser, kindSystem}}
	var provider, model string
	c := &cobra.Command{
		Use:   "init ID",
		Short: "Make a new agent",
		Long: `Make a new agent: a directory with its identity, its settings and an empty
inbox. It does not work on messages before it is started.`,
		Example: `  agentctl init alice
  agentctl init watcher --kind system --provider openai --model gpt-5`,
		Args: command.Args("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			req := &registry.CreateAgentRequest{AgentId: args[0], Provider: provider, Model: model, Kind: registry.AgentKind_AGENT_KIND_USER}
			if kind.Value == kindSystem {
				req.Kind = registry.AgentKind_AGENT_KIND_SYSTEM
			}
			r, err := e.Agents().CreateAgent(c.Context(), req)
			if err != nil {
				return err
			}
			a := r.GetAgent()
			if e.Flags.JSON {
				return e.PrintJSON(struct {
					description
					condition
				}{describe(a), conditionOf(a)})
			}
			if a.GetModel() != "" {
				fmt.Fprintf(e.Out, "Resolved pai config: %s (context: %d)\n", a.GetModel(), a.GetContextWindow())
			}
			fmt.Fprintf(e.Out, "Agent '%s' initialized at %s\n", a.GetAgentId(), a.GetDir())
			return nil
		},
	}
	c.Flags().Var(&kind, "kind", "what the agent is for")
	c.Flags().StringVar(&provider, "provider", "", "model provider to write into its settings")
	c.Flags().StringVar(&model, "model", "", "model to write into its settings")
	return c
}

// changed is the answer of start and stop for programs.
type changed struct {
	AgentID string `json:"agent_id"`
	Started bool   `json:"started"`
	Already bool   `json:"already"`
}

func startCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "start ID",
		Short: "Let an agent work on its messages",
		Long: `Let an agent work on its messages, from the first one it has not finished.
Starting a started agent changes nothing.`,
		Example:           `  agentctl start alice`,
		Args:              command.Args("ID"),
		ValidArgsFunction: e.CompleteID,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Agents().StartAgent(c.Context(), &registry.StartAgentRequest{AgentId: args[0]})
			if err != nil {
				return err
			}
			return tell(e, args[0], true, r.GetAlready())
		},
	}
}

func stopCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "stop ID",
		Short: "Let an agent finish what it is doing and rest",
		Long: `Let an agent finish what it is doing and begin nothing new. Messages are still
accepted and wait until it is started again.`,
		Example:           `  agentctl stop alice`,
		Args:              command.Args("ID"),
		ValidArgsFunction: e.CompleteID,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Agents().StopAgent(c.Context(), &registry.StopAgentRequest{AgentId: args[0]})
			if err != nil {
				return err
			}
			return tell(e, args[0], false, r.GetAlready())
		},
	}
}

func tell(e *command.Env, id string, started, already bool) error {
	if e.Flags.JSON {
		return e.PrintJSON(changed{id, started, already})
	}
	word := map[bool]string{true: "started", false: "stopped"}[started]
	if already {
		word = "already " + word
	}
	fmt.Fprintf(e.Out, "Agent '%s' %s\n", id, word)
	return nil
}

func bootstrapCommand(e *command.Env) *cobra.Command {
	var provider, model string
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make the system agents that are missing",
		Long: `Make the four system agents that are missing: admin (talks to you), warden
(watches), maintainer (looks after errors and upgrades) and evolver (improves).
Those that exist are left as they are.`,
		Example: `  agentctl bootstrap
  agentctl bootstrap --provider openai --model gpt-5`,
		Args: command.Args(),
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := e.Agents().BootstrapAgents(c.Context(), &registry.BootstrapAgentsRequest{Provider: provider, Model: model})
			if err != nil {
				return err
			}
			if e.Flags.JSON {
				return e.PrintJSON(struct {
					Created  []string `json:"created"`
					Existing []string `json:"existing"`
				}{append([]string{}, r.GetCreated()...), append([]string{}, r.GetExisting()...)})
			}
			for _, id := range r.GetCreated() {
				fmt.Fprintf(e.Out, "Agent '%s' created\n", id)
			}
			for _, id := range r.GetExisting() {
				fmt.Fprintf(e.Out, "Agent '%s' already exists\n", id)
			}
			return nil
		},
	}
	c.Flags().StringVar(&provider, "provider", "", "model provider to write into the new agents' settings")
	c.Flags().StringVar(&model, "model", "", "model to write into the new agents' settings")
	return c
}
