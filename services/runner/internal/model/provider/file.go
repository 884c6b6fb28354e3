package provider

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/theclaw/agents/internal/price"
	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/services/runner/internal/model"
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
	// Thinking is a value of package thinking.
	Thinking string `yaml:"thinking"`
	// Facts and Price by model.
	Facts map[string]factEntry  `yaml:"facts"`
	Price map[string]priceEntry `yaml:"price"`
}

type factEntry struct {
	// Images: the model takes images.
	Images *bool `yaml:"images"`
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
		return f, &model.Error{Class: model.Config, Message: base(path) + yamlProblem(data, err)}
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
func yamlProblem(data []byte, err error) string {
	at, key := "", ""
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil && e.GetToken().Position != nil {
		p := e.GetToken().Position
		at, key = fmt.Sprintf(":%d:%d", p.Line, p.Column), keyAt(data, p.Line, p.Column)
	}
	var unknown *yaml.UnknownFieldError
	var kind *yaml.TypeError
	switch {
	case errors.As(err, &unknown):
		return at + ": " + strings.Replace(unknown.GetMessage(), "unknown field", "unknown key", 1)
	case errors.As(err, &kind):
		return at + ": " + key + "must be " + shape(kind.DstType)
	}
	return at + ": this is not valid YAML of the expected shape; check indentation, brackets and quotes, and that no key is there twice"
}

var keys = regexp.MustCompile(`([A-Za-z_]{1,40})"?\s*:`)

// keyAt is the key whose value begins at a place, or "".
func keyAt(data []byte, line, column int) string {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	before := lines[line-1]
	if column >= 1 && column <= len(before) {
		before = before[:column-1]
	}
	found := keys.FindAllStringSubmatch(before, -1)
	if len(found) == 0 || !known(found[len(found)-1][1]) {
		return ""
	}
	return found[len(found)-1][1] + " "
}

// known tells the keys of the format from other text of the file, which may be a secret.
func known(key string) bool {
	for _, t := range []reflect.Type{reflect.TypeFor[fileFormat](), reflect.TypeFor[fileEntry](), reflect.TypeFor[factEntry](), reflect.TypeFor[priceEntry]()} {
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("yaml") == key {
				return true
			}
		}
	}
	return false
}

// shape is a type of the format in words.
func shape(t reflect.Type) string {
	switch {
	case t == nil:
	case t.Kind() == reflect.Pointer:
		return shape(t.Elem())
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list"
	}
	return "`key: value` lines"
}

// provider checks an entry; problem is a sentence, or empty.
func (e fileEntry) provider(name, dir string, getenv func(string) string) (p Provider, problem string) {
	p = Provider{Name: name, API: e.API, BaseURL: e.BaseURL, Models: e.Models, ContextWindow: e.ContextWindow, strict: true, facts: e.Facts}
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
	var ok bool
	if p.thinking, ok = thinking.Parse(e.Thinking); !ok {
		return "thinking must be " + thinking.Form
	}
	if p.thinking != (thinking.Option{}) && p.API != apiAnthropic {
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
