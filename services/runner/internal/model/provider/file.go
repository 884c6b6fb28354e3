package provider

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/theclaw/agents/internal/price"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/anthropic"
	"github.com/theclaw/agents/services/runner/internal/model/offline"
	"github.com/theclaw/agents/services/runner/internal/model/wire"
)

// fileFormat is providers.yaml.
type fileFormat struct {
	Default   string               `yaml:"default"`
	Providers map[string]fileEntry `yaml:"providers"`
}

type fileEntry struct {
	API             string   `yaml:"api"`
	BaseURL         string   `yaml:"base_url"`
	APIKey          string   `yaml:"api_key"`
	Models          []string `yaml:"models"`
	ContextWindow   int      `yaml:"context_window"`
	ReplayReasoning *bool    `yaml:"replay_reasoning"`
	// Thinking is off, adaptive or a number of tokens.
	Thinking string `yaml:"thinking"`
	// Price by model.
	Price map[string]priceEntry `yaml:"price"`
}

type priceEntry struct {
	Input      *float64 `yaml:"input"`
	Output     *float64 `yaml:"output"`
	CacheRead  *float64 `yaml:"cache_read"`
	CacheWrite *float64 `yaml:"cache_write"`
}

func loadFile(path string, getenv func(string) string) (found, error) {
	f := found{source: FromFile}
	if path == "" {
		return f, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, &model.Error{Class: model.Config, Message: base(path) + " cannot be read: " + why(err), Err: err}
	}
	var file fileFormat
	if err := yaml.UnmarshalWithOptions(data, &file, yaml.Strict()); err != nil {
		return f, &model.Error{Class: model.Config, Message: base(path) + yamlProblem(err)}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		p, problem := file.Providers[name].provider(name, filepath.Dir(path), getenv)
		if problem != "" {
			return f, model.Errorf(model.Config, "%s: provider %q: %s", base(path), name, problem)
		}
		f.providers = append(f.providers, p)
	}
	f.defaultName = file.Default
	if f.defaultName == "" && len(f.providers) == 1 {
		f.defaultName = f.providers[0].Name
	}
	switch _, ok := file.Providers[f.defaultName]; {
	case f.defaultName == "" && len(f.providers) == 0:
		f.notes = append(f.notes, base(path)+" is there and describes no provider")
	case f.defaultName == "":
		return f, model.Errorf(model.Config, "%s: default must name one of its providers", base(path))
	case !ok && f.defaultName != offline.Name && !isPreset(f.defaultName) && !isProgram(f.defaultName):
		return f, model.Errorf(model.Config, "%s: default %q is not one of its providers", base(path), f.defaultName)
	}
	f.why = base(path) + " names it"
	return f, nil
}

// yamlProblem words an error of the YAML package without any of the file's
// text but the names of keys: the lines around a mistake may hold a key that
// was written where a reference belongs.
func yamlProblem(err error) string {
	at := ""
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil && e.GetToken().Position != nil {
		at = fmt.Sprintf(":%d:%d", e.GetToken().Position.Line, e.GetToken().Position.Column)
	}
	var unknown *yaml.UnknownFieldError
	var kind *yaml.TypeError
	switch {
	case errors.As(err, &unknown):
		return at + ": " + unknown.GetMessage()
	case errors.As(err, &kind):
		return at + ": " + kind.GetMessage()
	}
	return at + ": not valid YAML of the expected shape"
}

// provider checks an entry; problem is a sentence, or empty.
func (e fileEntry) provider(name, dir string, getenv func(string) string) (p Provider, problem string) {
	p = Provider{Name: name, API: e.API, BaseURL: e.BaseURL, Models: e.Models, ContextWindow: e.ContextWindow, strict: true}
	if k, ok := findPreset(name); ok {
		p.replayReasoning = k.ReplayReasoning
		if p.API == "" {
			p.API = k.API
		}
		if p.BaseURL == "" {
			p.BaseURL = k.BaseURL
		}
		if p.ContextWindow == 0 {
			p.ContextWindow, p.windows = k.Window, k.Windows
		}
	}
	if e.ReplayReasoning != nil {
		p.replayReasoning = *e.ReplayReasoning
	}
	if p.API == "" {
		p.API = apiOpenAI
	}
	switch {
	case strings.TrimSpace(name) != name || name == "":
		return p, "the name is empty or has spaces around it"
	case name == offline.Name && p.API != apiOffline:
		return p, "the name offline is the built-in model's"
	case strings.Contains(name, "/"):
		return p, "the name has a slash, which parts it from the model's"
	case p.API != apiOffline && drivers[p.API] == nil:
		return p, "api must be " + apis()
	case e.ContextWindow < 0:
		return p, "context_window must be a number of tokens"
	case slices.Contains(e.Models, ""):
		return p, "a model has no name"
	case p.API == apiOffline:
		return p, ""
	}
	if problem := e.figures(&p); problem != "" {
		return p, problem
	}
	if wire.CheckEndpoint(name, p.BaseURL, &http.Client{}) != nil {
		return p, "base_url must be an http or https URL without credentials or a query"
	}
	if e.APIKey == "" {
		return p, ""
	}
	key, ok := reference(e.APIKey, dir, getenv)
	if !ok {
		return p, "api_key must be a reference, env:NAME or file:PATH, and not the key itself"
	}
	p.KeyFrom, p.key = e.APIKey, key
	return p, ""
}

// figures takes over what is written as numbers.
func (e fileEntry) figures(p *Provider) (problem string) {
	if p.thinking, problem = anthropic.ParseThinking(e.Thinking); problem != "" {
		return problem
	}
	if p.thinking != (anthropic.Thinking{}) && p.API != apiAnthropic {
		return "thinking can be set for api anthropic only; models of others think as they do"
	}
	for name, f := range e.Price {
		for _, n := range []*float64{f.Input, f.Output, f.CacheRead, f.CacheWrite} {
			if n != nil && !(*n >= 0 && *n <= maxPrice) {
				return fmt.Sprintf("a price of model %q is not a number from 0 to %d", name, int(maxPrice))
			}
		}
		if f.Input == nil || f.Output == nil {
			return fmt.Sprintf("the price of model %q needs input and output, per million tokens", name)
		}
		if p.prices == nil {
			p.prices = map[string]price.Price{}
		}
		p.prices[name] = price.Price{Input: *f.Input, Output: *f.Output, CacheRead: f.CacheRead, CacheWrite: f.CacheWrite}
	}
	return ""
}

const maxPrice = 1e6
