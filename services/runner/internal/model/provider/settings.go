package provider

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/price"
	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/offline"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
)

// Source says where a provider comes from.
type Source string

// The sources, in their order.
const (
	FromFile        Source = "providers.yaml"
	FromEnvironment Source = "environment"
	FromPai         Source = "pai configuration"
	FromNowhere     Source = "built in"
)

// The APIs a provider may speak.
const (
	apiOffline = "offline"
)

// DefaultContextWindow is assumed, in tokens, where nothing else is said.
const DefaultContextWindow = 128_000

// Provider is one way to a model.
type Provider struct {
	Name    string
	API     string
	BaseURL string
	// KeyFrom says where the key is read from, like env:OPENAI_API_KEY; empty
	// means that none is sent.
	KeyFrom string
	// Models are the known models, the default first.
	Models []string
	// ContextWindow is in tokens.
	ContextWindow int
	Source        Source

	// key reads the key; nil means none. It is a function so that no way of
	// printing a Provider shows it.
	key func() (string, error)
	// strict refuses models that are not listed.
	strict          bool
	replayReasoning bool
	thinking        thinking.Option
	// windows of single models, in tokens.
	windows map[string]int
	facts   map[string]factEntry
	prices  map[string]price.Price
}

// Window is the context window of a model, in tokens.
func (p Provider) Window(model string) int {
	if w := p.windows[model]; w > 0 {
		return w
	}
	return p.ContextWindow
}

// Images reports whether a model takes images: as providers.yaml says, else as is known of the models of the endpoint.
// Of a model that is not known it is false: a request with an image would be refused.
func (p Provider) Images(model string) bool {
	if f := p.facts[model]; f.Images != nil {
		return *f.Images
	}
	return slices.ContainsFunc(Presets, func(known Preset) bool {
		return known.API == p.API && known.BaseURL != "" && known.BaseURL == strings.TrimSuffix(p.BaseURL, "/") &&
			slices.ContainsFunc(known.Images, func(prefix string) bool { return strings.HasPrefix(model, prefix) })
	})
}

// Price of a model, when providers.yaml has one.
func (p Provider) Price(model string) (price.Price, bool) {
	out, ok := p.prices[model]
	return out, ok
}

// Prices are those of providers.yaml, by model.
func (p Provider) Prices() map[string]price.Price { return maps.Clone(p.prices) }

// CheckKey reads the key as a call would, and forgets it; nil when there is one
// or none is needed.
func (p Provider) CheckKey() error {
	if p.key == nil {
		return nil
	}
	_, err := p.key()
	return err
}

// Settings are the providers of this machine; they do not change once they are used.
type Settings struct {
	// Default is the provider for agents that name none.
	Default string
	// Source is where the default comes from.
	Source Source
	// Why says in one sentence why it is the default.
	Why string
	// Notes are findings for doctor: things set and not used.
	Notes []string
	// OnKey is called with each key before it is used, so that no log shows it; nil: it is not.
	OnKey func(keys ...string)

	providers map[string]Provider
	program   program
	client    *http.Client
}

// Load finds the providers. providersYAML may be missing. getenv answers for
// the environment. paiConfig overrides where the pai configuration is looked
// for; empty means the usual places. A file that is there and cannot be used
// is an error of class Config, except a pai configuration that is not needed.
func Load(providersYAML string, getenv func(string) string, paiConfig string) (*Settings, error) {
	s := &Settings{providers: make(map[string]Provider), client: newClient(getenv)}
	for _, load := range []func() (found, error){
		func() (found, error) { return loadFile(providersYAML, getenv) },
		func() (found, error) { return loadEnvironment(getenv), nil },
		func() (found, error) {
			f, err := loadPai(paiConfig, getenv, s.Default != "")
			s.program = program{getenv: getenv, config: paiConfig, providers: f.providers, first: f.first}
			return f, err
		},
	} {
		f, err := load()
		if err != nil {
			return nil, err
		}
		s.merge(f)
	}
	if p, ok := s.find(s.Default); ok { // it may be another name of it
		s.Default = p.Name
	}
	if s.Default == "" {
		s.Default, s.Source = offline.Name, FromNowhere
		s.Why = "there is no providers.yaml, no provider in the environment and no pai configuration"
		if len(s.Notes) > 0 {
			s.Why = "nothing that is configured can be the default"
		}
	}
	return s, nil
}

// found is what one source holds.
type found struct {
	source      Source
	providers   []Provider
	defaultName string
	why         string
	notes       []string
	first       string // pai's own default, also when it cannot be ours
}

func (s *Settings) merge(f found) {
	for _, p := range f.providers {
		if _, taken := s.providers[p.Name]; taken || p.Name == offline.Name {
			continue
		}
		p.Source = f.source
		if p.ContextWindow == 0 {
			p.ContextWindow = DefaultContextWindow
		}
		s.providers[p.Name] = p
	}
	if s.Default == "" && f.defaultName != "" {
		s.Default, s.Source, s.Why = f.defaultName, f.source, f.why
	}
	s.Notes = append(s.Notes, f.notes...)
}

// Providers lists all providers by name, offline included.
func (s *Settings) Providers() []Provider {
	all := slices.Collect(maps.Values(s.providers))
	all = append(all, Provider{Name: offline.Name, API: apiOffline, Models: []string{offline.Name}, ContextWindow: offline.ContextWindow, Source: FromNowhere})
	slices.SortFunc(all, func(a, b Provider) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Hint is one line for a person who starts the program.
func (s *Settings) Hint() string {
	if s.Default == offline.Name && s.Source == FromNowhere {
		return fmt.Sprintf("model: offline, the built-in stand-in that is no language model (%s); for real answers set OPENAI_API_KEY or write providers.yaml", s.Why)
	}
	p := s.providers[s.Default]
	name := s.Default
	if len(p.Models) > 0 {
		name += " " + p.Models[0]
	}
	return fmt.Sprintf("model: %s (%s)", name, s.Why)
}

// String is the hint; no way of printing Settings shows a key.
func (s *Settings) String() string { return s.Hint() }

// Close drops idle connections; the Settings stay usable.
func (s *Settings) Close() { s.client.CloseIdleConnections() }

// Resolve returns the driver for a provider and model, the model's name as the
// provider wants it and the context window in tokens. Empty names mean the
// defaults. Errors are *model.Error of class Config (S0-41) or, for a key that
// cannot be read, Auth.
func (s *Settings) Resolve(providerName, modelName string) (model.Driver, string, int, error) {
	if providerName == "" {
		providerName = s.Default
	}
	if providerName == offline.Name {
		return offline.Driver{}, offline.Name, offline.ContextWindow, nil
	}
	p, ok := s.find(providerName)
	if !ok {
		return nil, "", 0, notConfigured(providerName)
	}
	if p.API == apiOffline {
		return offline.Driver{}, offline.Name, p.ContextWindow, nil
	}
	newDriver, ok := drivers[p.API]
	if !ok {
		return nil, "", 0, model.Errorf(model.Config, "provider %q speaks the api %q, which is not supported", p.Name, p.API)
	}
	switch {
	case modelName == "" && len(p.Models) == 0:
		return nil, "", 0, model.Errorf(model.Config, "provider %q has no default model: name one in the agent's config.yaml or in providers.yaml", p.Name)
	case modelName == "":
		modelName = p.Models[0]
	case p.strict && len(p.Models) > 0 && !slices.Contains(p.Models, modelName):
		return nil, "", 0, model.Errorf(model.Config, "provider %q has no model %q; providers.yaml lists %s", p.Name, modelName, strings.Join(p.Models, ", "))
	}
	d, err := s.driver(p, newDriver)
	if err != nil {
		return nil, "", 0, err
	}
	return d, modelName, p.Window(modelName), nil
}

// driver makes the driver of a provider with its key.
func (s *Settings) driver(p Provider, newDriver makeDriver) (model.Driver, error) {
	var key string
	if p.key != nil {
		var err error
		if key, err = p.key(); err != nil {
			return nil, &model.Error{Class: model.Auth, Message: fmt.Sprintf("the key of provider %q: %v", p.Name, err), Err: err}
		}
		if s.OnKey != nil {
			s.OnKey(key)
		}
	}
	return newDriver(p, key, s.client)
}

// Transcriber returns the driver of a provider whose endpoint may make text of speech. Errors are as those of Resolve.
func (s *Settings) Transcriber(providerName string) (*openai.Driver, error) {
	p, ok := s.find(providerName)
	if !ok && providerName != offline.Name {
		return nil, notConfigured(providerName)
	}
	if p.API != apiOpenAI {
		return nil, model.Errorf(model.Config, "provider %q makes no text of speech: that takes one with api: %s", providerName, apiOpenAI)
	}
	d, err := s.driver(p, drivers[apiOpenAI])
	if err != nil {
		return nil, err
	}
	return d.(*openai.Driver), nil
}

func notConfigured(name string) *model.Error {
	return model.Errorf(model.Config, "provider %q is not configured%s", name, howTo(name))
}

// find returns the provider of a name, else one that has the name as an alias, or is an alias of it.
func (s *Settings) find(name string) (Provider, bool) {
	if p, ok := s.providers[name]; ok {
		return p, true
	}
	for _, other := range Names(name) {
		if p, ok := s.providers[other]; ok {
			return p, true
		}
	}
	return Provider{}, false
}

// Names are all names of the well-known provider that has a name, its own one first; none when
// there is no such provider.
func Names(name string) []string {
	p, ok := findPreset(name)
	if !ok {
		return nil
	}
	return append([]string{p.Name}, p.Aliases...)
}

// Price of a provider's model, when providers.yaml has one.
func (s *Settings) Price(providerName, modelName string) (price.Price, bool) {
	return s.providers[providerName].Price(modelName)
}

// Images reports whether a provider's model takes images.
func (s *Settings) Images(providerName, modelName string) bool {
	return s.providers[providerName].Images(modelName)
}

// howTo adds the way to a provider that is known but not set up.
func howTo(name string) string {
	if p, ok := findPreset(name); ok {
		return ": set " + strings.Join(p.Needs(), " and ") + ", or describe it in providers.yaml"
	}
	return ": describe it in providers.yaml"
}

// base is a file's name without its directory, for messages.
func base(path string) string { return filepath.Base(path) }

// why is the cause of a file error without the path.
func why(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
