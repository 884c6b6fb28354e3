package provider

import (
	"slices"
	"strings"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// ProgramName is the provider name of the pai program; pai/NAME picks one of the
// providers that it knows.
const ProgramName = "pai"

// Program is a way to a model through the pai program.
type Program struct {
	// Name is how the agent names it.
	Name string
	// Command is the program: PAI_COMMAND, or pai.
	Command string
	// Provider and Model are what it is called with.
	Provider, Model string
	// ContextWindow is in tokens.
	ContextWindow int
	// Env is the part of our environment that pai needs.
	Env map[string]string
}

// program is what Load found out about pai.
type program struct {
	getenv    func(string) string
	config    string
	providers []Provider
	first     string
}

func isProgram(name string) bool {
	return name == ProgramName || strings.HasPrefix(name, ProgramName+"/") && len(name) > len(ProgramName)+1
}

// passed are variables a program of the user needs to be itself. Keys are not
// among them, but for the one of the provider that is called.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "XDG_CONFIG_HOME", "PAI_CONFIG",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}

// Program returns the call of the pai program for a provider and a model, when the
// provider's name means it. Errors are *model.Error of class Config.
func (s *Settings) Program(providerName, modelName string) (p Program, ok bool, err error) {
	if providerName == "" {
		providerName = s.Default
	}
	if _, taken := s.providers[providerName]; taken || !isProgram(providerName) {
		return Program{}, false, nil
	}
	p = Program{Name: providerName, Command: s.program.getenv("PAI_COMMAND"), Model: modelName, ContextWindow: DefaultContextWindow, Env: map[string]string{}}
	if p.Command == "" {
		p.Command = ProgramName
	}
	_, p.Provider, _ = strings.Cut(providerName, "/")
	if p.Provider == "" {
		p.Provider = s.program.first
	}
	if p.Provider == "" {
		return p, true, model.Errorf(model.Config, "the pai configuration has no default provider: name one as %s/NAME", ProgramName)
	}
	// What we do not find in its configuration, pai may still find.
	if i := slices.IndexFunc(s.program.providers, func(k Provider) bool { return k.Name == p.Provider }); i >= 0 {
		known := s.program.providers[i]
		if p.Model == "" && len(known.Models) > 0 {
			p.Model = known.Models[0]
		}
		if known.ContextWindow > 0 {
			p.ContextWindow = known.ContextWindow
		}
	}
	if p.Model == "" {
		return p, true, model.Errorf(model.Config, "the provider %q of pai has no default model: name one as pai.model in the agent's config.yaml", p.Provider)
	}
	key := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(p.Provider)) + "_API_KEY"
	for _, name := range append([]string{key}, passed...) {
		if v := s.program.getenv(name); v != "" {
			p.Env[name] = v
		}
	}
	if s.program.config != "" {
		p.Env["PAI_CONFIG"] = s.program.config
	}
	return p, true, nil
}
