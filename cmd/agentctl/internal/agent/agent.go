// Package agent implements the commands for the life cycle of an agent: `agentctl init`,
// start, stop, status, list, bootstrap and rm. The wording of their output is that of
// the older agent tool, which scripts parse.
package agent

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/toolpolicy"
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
	return command.Word(h, "AGENT_HEALTH_", "ok")
}

func initCommand(e *command.Env) *cobra.Command {
	kind := command.Choice{Value: kindUser, Values: []string{kindUser, kindSystem}}
	var provider, model string
	c := &cobra.Command{
		Use:   "init ID...",
		Short: "Create an agent",
		Long: `Create an agent: a directory with its identity, its settings and an empty inbox. It
does not process messages before it is started. Its tools are those of the profile coding
and web_fetch, unless theclaw.yaml chooses the tools of agents or another flavor.

With several names all agents are created, many at a time. If one fails, the others
are still created; the exit code is then 1. With --json the output is a list.`,
		Example: `  agentctl init alice
  agentctl init watcher --kind system --provider openai --model gpt-5
  seq -f 'node-%05g' 10000 | xargs -n 10000 agentctl init`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkModel(c.Context(), e, provider, model); err != nil {
				return err
			}
			return each(c.Context(), e, args, func(ctx context.Context, id string) (answer, error) {
				req := NewRequest(id)
				req.Provider, req.Model = provider, model
				if kind.Value == kindSystem {
					req.Kind = registry.AgentKind_AGENT_KIND_SYSTEM
				}
				r, err := e.Agents().CreateAgent(ctx, req)
				return made(r.GetAgent()), err
			})
		},
	}
	c.ValidArgsFunction = cobra.NoFileCompletions // a new name
	c.Annotations = map[string]string{"ID": "NEW ID"}
	c.Flags().Var(&kind, "kind", "purpose of the agent")
	command.TextFlag(c.Flags(), &provider, "provider", command.Provider, "model provider in its settings")
	command.TextFlag(c.Flags(), &model, "model", command.Model, "model in its settings")
	return c
}

// NewRequest is the request for an agent that a person makes: it works with files and reads pages.
func NewRequest(id string) *registry.CreateAgentRequest {
	return &registry.CreateAgentRequest{
		AgentId: id, Kind: registry.AgentKind_AGENT_KIND_USER, ToolsProfile: toolpolicy.Coding, ToolsAlsoAllow: []string{"web_fetch"},
	}
}

// checkModel refuses names that the runner does not know, and warns of a provider that is
// not set up yet: the first message of the agent would fail because of it.
func checkModel(ctx context.Context, e *command.Env, name, model string) error {
	if name == "" && model == "" {
		return nil
	}
	p := provider.Check(ctx, e, name, model)
	switch {
	case p == nil:
	case p.Wrong:
		return p.Err()
	default:
		p.Warn(e)
	}
	return nil
}

// made is the answer of init.
func made(a *registry.Agent) answer {
	text := ""
	if a.GetModel() != "" {
		text = fmt.Sprintf("Resolved pai config: %s (context: %d)\n", a.GetModel(), a.GetContextWindow())
	}
	where := cmp.Or(a.GetDir(), "the shared database") // an agent of a database has no directory
	return answer{struct {
		description
		condition
	}{describe(a), conditionOf(a)}, text + fmt.Sprintf("Agent '%s' initialized at %s\n", a.GetAgentId(), where)}
}

// changed is the answer of start and stop for programs.
type changed struct {
	AgentID string `json:"agent_id"`
	Started bool   `json:"started"`
	Already bool   `json:"already"`
}

func startCommand(e *command.Env) *cobra.Command {
	return lifeCommand(e, true, &cobra.Command{
		Use:   "start [ID...]",
		Short: "Start agents: let them process messages",
		Long: `Start an agent: let it process its messages, from the first one it has not finished.
Starting a started agent changes nothing. If one of several agents fails, the others
are still started; with --json the output is then a list.`,
		Example: `  agentctl start alice
  agentctl start --all`,
	}, func(ctx context.Context, id string) (bool, error) {
		r, err := e.Agents().StartAgent(ctx, &registry.StartAgentRequest{AgentId: id})
		return r.GetAlready(), err
	})
}

func stopCommand(e *command.Env) *cobra.Command {
	return lifeCommand(e, false, &cobra.Command{
		Use:   "stop [ID...]",
		Short: "Stop agents: finish current work, begin nothing new",
		Long: `Stop an agent: it finishes its current work and begins nothing new. Messages are still
accepted and wait until it is started again. If one of several agents fails, the others
are still stopped; with --json the output is then a list.`,
		Example: `  agentctl stop alice
  agentctl stop --all`,
	}, func(ctx context.Context, id string) (bool, error) {
		r, err := e.Agents().StopAgent(ctx, &registry.StopAgentRequest{AgentId: id})
		return r.GetAlready(), err
	})
}

// lifeCommand makes start and stop, which differ only in what they ask for.
func lifeCommand(e *command.Env, started bool, c *cobra.Command, do func(ctx context.Context, id string) (already bool, err error)) *cobra.Command {
	var all bool
	c.RunE = func(c *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return command.Usage(c, "name agents, or give --all")
		}
		ids, err := chosen(c.Context(), e, args, started)
		if err != nil {
			return err
		}
		return each(c.Context(), e, ids, func(ctx context.Context, id string) (answer, error) {
			already, err := do(ctx, id)
			return told(id, started, already), err
		})
	}
	c.Flags().BoolVar(&all, "all", false, map[bool]string{true: "all stopped agents", false: "all started agents"}[started])
	return c
}

func told(id string, started, already bool) answer {
	word := map[bool]string{true: "started", false: "stopped"}[started]
	if already {
		word = "already " + word
	}
	return answer{changed{id, started, already}, fmt.Sprintf("Agent '%s' %s\n", id, word)}
}

func bootstrapCommand(e *command.Env) *cobra.Command {
	var provider, model string
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Create the missing system agents",
		Long: `Create the system agents that are missing: admin (talks to you), warden (monitors),
maintainer (handles errors and upgrades) and evolver (improves). Existing ones are not
changed.`,
		Example: `  agentctl bootstrap
  agentctl bootstrap --provider openai --model gpt-5`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkModel(c.Context(), e, provider, model); err != nil {
				return err
			}
			r, err := e.Agents().BootstrapAgents(c.Context(), &registry.BootstrapAgentsRequest{Provider: provider, Model: model})
			if err != nil {
				return err
			}
			return e.Print(struct {
				Created  []string `json:"created"`
				Existing []string `json:"existing"`
			}{append([]string{}, r.GetCreated()...), append([]string{}, r.GetExisting()...)}, append(r.GetCreated(), r.GetExisting()...), func() error {
				for _, id := range r.GetCreated() {
					fmt.Fprintf(e.Out, "Agent '%s' created\n", id)
				}
				for _, id := range r.GetExisting() {
					fmt.Fprintf(e.Out, "Agent '%s' already exists\n", id)
				}
				return nil
			})
		},
	}
	command.TextFlag(c.Flags(), &provider, "provider", command.Provider, "model provider in the settings of new agents")
	command.TextFlag(c.Flags(), &model, "model", command.Model, "model in the settings of new agents")
	return c
}
