package feed

import (
	"cmp"
	"context"
	"strings"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/grpc"

	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Model is what answers for an agent.
type Model struct {
	// Name is PROVIDER/MODEL, or the provider alone; empty when no runner can be asked.
	Name string
	// Origin is where this was chosen, such as config.yaml:3 or the environment.
	Origin string
	// Offline is true for the built-in stand-in.
	Offline bool
	// Problem is why it cannot be used, and what to do about it.
	Problem string
}

// ModelOf asks the services for the model of an agent. A runner that is starting is waited
// for until ctx ends; what cannot be found out is left empty.
func ModelOf(ctx context.Context, e *command.Env, agent string) Model {
	return modelOf(ctx, e, agent, "")
}

// modelOf is ModelOf with the model that was set for a session; empty: none was.
func modelOf(ctx context.Context, e *command.Env, agent, session string) (m Model) {
	set, err := e.Agents().GetAgentConfig(ctx, &registry.GetAgentConfigRequest{AgentId: agent})
	if err != nil {
		return m // the first message says what is wrong with the agent
	}
	name, model := provider.ChosenOf(set)
	if of, other, both := strings.Cut(session, "/"); both {
		name, model = of, other
	} else if session != "" {
		model = session
	}
	r, err := e.RunnerService().ListProviders(ctx, &runner.ListProvidersRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return m
	}
	if p := provider.Find(r.GetProviders(), name); p != nil {
		name, m.Origin, m.Offline = p.GetName(), p.GetOrigin(), p.GetDriver() == "offline"
		if model == "" && len(p.GetModels()) > 0 {
			model = p.GetModels()[0].GetName()
		}
	}
	for _, v := range set.GetValues() {
		if (v.GetKey() == "pai.provider" || v.GetKey() == "pai.model") && v.GetOrigin() != "default" {
			m.Origin = v.GetOrigin()
		}
	}
	if session != "" {
		m.Origin = "this session"
	}
	m.Name = strings.Trim(name+"/"+model, "/")
	if p := provider.Check(ctx, e, name, model); p != nil {
		m.Problem = "the model of " + agent + " cannot be used: " + p.What + " - " + p.Fix
	}
	return m
}

// Describe asks for the model of the conversation. A session that cannot be read has none of
// its own.
func (s *Source) Describe(ctx context.Context, at Place) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, s.Env.Flags.Timeout)
		defer cancel()
		found, _, _ := s.session(ctx, at)
		return modelOf(ctx, s.Env, s.Agent, found.GetOverrides().GetModel())
	}
}

// Title is the model in one line; empty when it is not known.
func (m Model) Title() string {
	switch {
	case m.Offline:
		return "no model, the offline stand-in answers"
	case m.Origin != "":
		return m.Name + " (" + m.Origin + ")"
	}
	return m.Name
}

// Line says in one line who answers, and how to have a model where none does.
func (m Model) Line() string {
	if m.Offline {
		return "model: the built-in offline stand-in answers, which is no language model; for a real one set OPENAI_API_KEY " +
			"(also DEEPSEEK_API_KEY, MOONSHOT_API_KEY; OPENAI_BASE_URL for another endpoint) or write providers.yaml in the home directory"
	}
	return "model: " + cmp.Or(m.Title(), "unknown, no runner answers")
}

// Advice is what a person must know before the first message: that no model answers, and how
// to have one; or why it cannot. Empty when there is nothing to say.
func (m Model) Advice() string {
	if m.Problem == "" && m.Offline {
		return `No model is set up: the offline stand-in answers, which is no language model.
For a real one leave with Ctrl-D and run 'agentctl setup'. Or set a key where
agentd is started, and start again:
  export OPENAI_API_KEY=...   (or DEEPSEEK_API_KEY, ANTHROPIC_API_KEY, ...;
                              OPENAI_BASE_URL is for another endpoint)
or write providers.yaml in the home directory.`
	}
	return m.Problem
}
