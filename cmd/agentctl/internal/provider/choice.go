package provider

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// patience bounds a check: a command that only names a provider does not wait for a runner.
const patience = 3 * time.Second

// glance bounds the question for names that are shown with others.
const glance = 300 * time.Millisecond

// Problem is why a turn with a provider and a model would fail before it calls the provider.
type Problem struct {
	What, Fix string
	// Wrong is true for a name that the runner does not know: a provider that is neither
	// set up nor well known, or a model that its provider is known not to have. Else
	// something is missing that may be set up later, such as a key.
	Wrong bool
	// Known is true when the provider is set up.
	Known bool
}

// Err is the problem as the error of a command: one of usage where the runner does not know the
// name of the provider.
func (p *Problem) Err() error {
	if p.Wrong && !p.Known {
		return fault.Usage(p.What, p.Fix)
	}
	return fault.New(codes.InvalidArgument, fault.ModelConfig, p.What, p.Fix)
}

// Warn reports a problem that does not stop a command.
func (p *Problem) Warn(e *command.Env) {
	e.Note("warning: %s - %s", screen.Line(p.What), screen.Line(p.Fix))
}

// Check asks the runner about a choice; empty names are the defaults. It returns nil when
// there is no problem, and when no runner can be asked: the registry alone does not know
// which providers the machine of a runner has.
func Check(ctx context.Context, e *command.Env, provider, model string) *Problem {
	p, _, err := check(ctx, e, &runner.ModelChoice{Provider: provider, Model: model})
	if err != nil {
		return nil
	}
	return p
}

// CheckTranscriber is Check for the provider that makes text of voice messages.
func CheckTranscriber(ctx context.Context, e *command.Env, provider string) *Problem {
	p, _, err := check(ctx, e, &runner.ModelChoice{Provider: provider, Transcribe: true})
	if err != nil {
		return nil
	}
	if p != nil && p.Wrong && p.Known {
		p.Fix = "'agentctl providers list' shows the providers with their drivers"
	}
	return p
}

// check is Check with all providers of the runner.
func check(ctx context.Context, e *command.Env, c *runner.ModelChoice) (*Problem, []*runner.Provider, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	provider := c.GetProvider()
	r, err := e.RunnerService().ListProviders(ctx, &runner.ListProvidersRequest{All: true, Check: c})
	if err != nil || r.GetProblem() == "" {
		return nil, r.GetProviders(), err
	}
	p := &Problem{What: r.GetProblem(), Fix: r.GetProblemFix(), Wrong: r.GetProblemReason() == fault.ModelConfig}
	switch known := Find(r.GetProviders(), provider); {
	case known == nil:
		p.Fix = "use one of " + NamesOf(r.GetProviders())
	case known.GetOrigin() == "": // well known and not set up
		p.Wrong, p.Fix = false, "set it up and start agentd again; 'agentctl providers list' shows what is there"
	case p.Wrong:
		p.Known, p.Fix = true, "'agentctl providers list' lists the models of the providers"
	default:
		p.Known, p.Fix = true, "set the key where agentd is started, and start it again; 'agentctl providers list' shows where it is read from"
	}
	return p, r.GetProviders(), nil
}

// Default returns the default model of a provider as PROVIDER/MODEL. Errors: one of usage with all
// names when the runner does not know the provider; MODEL_CONFIG when a turn with it would fail
// before it calls the provider; that of the call to the runner.
func Default(ctx context.Context, e *command.Env, name string) (string, error) {
	problem, list, err := check(ctx, e, &runner.ModelChoice{Provider: name})
	switch p := Find(list, name); {
	case err != nil:
		return "", err
	case problem != nil && problem.Wrong && !problem.Known:
		return "", problem.Err()
	case problem != nil:
		return "", fault.New(codes.FailedPrecondition, fault.ModelConfig, problem.What, problem.Fix)
	case len(p.GetModels()) == 0:
		return "", fault.New(codes.FailedPrecondition, fault.ModelConfig, "the runner does not list the models of "+name, "name one in the chat: /model "+name+"/MODEL")
	default:
		return p.GetName() + "/" + p.GetModels()[0].GetName(), nil
	}
}

// Find returns the provider of a list that a name or an alias means, and for no name the default;
// nil: there is none.
func Find(list []*runner.Provider, name string) *runner.Provider {
	for _, p := range list {
		if p.GetName() == name || name == "" && p.GetIsDefault() {
			return p
		}
	}
	for _, p := range list {
		if slices.Contains(p.GetAliases(), name) {
			return p
		}
	}
	return nil
}

// NamesOf lists the names of providers, each with its aliases in parentheses.
func NamesOf(list []*runner.Provider) string {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = screen.Line(p.GetName())
		if len(p.GetAliases()) > 0 {
			names[i] += " (" + screen.Line(strings.Join(p.GetAliases(), ", ")) + ")"
		}
	}
	return strings.Join(names, ", ")
}

// Names answers what names a model to people, given the model of an agent as the registry
// has it: where the agent leaves the provider or the model to the runner, what that
// chooses stands behind it. The runner is asked only if one of these agents does; when
// none answers the text stays as it is.
func Names(ctx context.Context, e *command.Env, models ...string) func(string) string {
	same := func(model string) string { return model }
	if !slices.ContainsFunc(models, func(m string) bool { return slices.Contains(strings.Split(m, "/"), "default") }) {
		return same
	}
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	r, err := e.RunnerService().ListProviders(ctx, &runner.ListProvidersRequest{})
	if err != nil {
		return same
	}
	return func(text string) string {
		name, model, _ := strings.Cut(text, "/")
		of := name
		if name == "default" {
			of = ""
		}
		p := Find(r.GetProviders(), of)
		if p == nil || name != "default" && model != "default" {
			return text
		}
		if (model == "" || model == "default") && len(p.GetModels()) > 0 {
			model = p.GetModels()[0].GetName()
		}
		return text + " (" + strings.TrimSuffix(p.GetName()+"/"+model, "/") + ")"
	}
}

// Chosen is the provider and the model of an agent's settings; empty where they name none.
func Chosen(ctx context.Context, e *command.Env, agent string) (provider, model string, err error) {
	r, err := e.Agents().GetAgentConfig(ctx, &registry.GetAgentConfigRequest{AgentId: agent})
	if err != nil {
		return "", "", err
	}
	provider, model = ChosenOf(r)
	return provider, model, nil
}

// ChosenOf is what Chosen reads.
func ChosenOf(r *registry.GetAgentConfigResponse) (provider, model string) {
	for _, v := range r.GetValues() {
		if v.GetOrigin() == "default" { // it is not set: the runner chooses
			continue
		}
		switch v.GetKey() {
		case keyProvider:
			provider = word(v.GetValue())
		case keyModel:
			model = word(v.GetValue())
		}
	}
	return provider, model
}

// The settings that choose a model, and what makes text of voice messages.
const (
	keyProvider   = "pai.provider"
	keyModel      = "pai.model"
	keyTranscribe = "media.transcribe"
)

// TranscriberOf is the provider that makes text of the voice messages of an agent; empty: none does.
func TranscriberOf(r *registry.GetAgentConfigResponse) string {
	for _, v := range r.GetValues() {
		if v.GetKey() == keyTranscribe {
			return config.FromValues(map[string]string{keyTranscribe: v.GetValue()}).Media.Transcribe.Provider
		}
	}
	return ""
}

// word is a YAML scalar without its quotes; a value that resets the setting is empty.
func word(value string) string {
	value = strings.Trim(strings.TrimSpace(value), `"'`)
	if value == "~" || value == "null" {
		return ""
	}
	return value
}

// CheckSetting checks a setting before it is written: a wrong name is an error, anything
// else that is missing a warning. Other settings than those of providers are not looked at.
func CheckSetting(ctx context.Context, e *command.Env, agent, key, value string) error {
	if key == keyTranscribe {
		return checkTranscribe(ctx, e, value)
	}
	if value = word(value); key != keyProvider && key != keyModel || value == "" {
		return nil
	}
	provider, model, err := Chosen(ctx, e, agent)
	if err != nil {
		return nil // setting it has the same error
	}
	if key == keyProvider {
		provider = value
	} else {
		model = value
	}
	p := Check(ctx, e, provider, model)
	switch {
	case p == nil:
	// A model that the new provider does not have is named next.
	case p.Wrong && (key == keyModel && p.Known || key == keyProvider && !p.Known):
		return p.Err()
	default:
		p.Warn(e)
	}
	return nil
}

// checkTranscribe checks the provider of a value of [keyTranscribe]. What is wrong with the value itself, setting it says.
func checkTranscribe(ctx context.Context, e *command.Env, value string) error {
	var t config.Transcribe
	if config.ParseTranscribe(value, &t) != "" || t.Provider == "" {
		return nil
	}
	switch p := CheckTranscriber(ctx, e, t.Provider); {
	case p == nil:
	case p.Wrong:
		return p.Err()
	default:
		p.Warn(e)
	}
	return nil
}
