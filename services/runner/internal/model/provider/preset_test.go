package provider_test

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model/anthropic"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
	"github.com/theclaw/agents/services/runner/internal/model/provider"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// A key in the environment, or in a line of providers.yaml, is enough for every
// provider that is known.
func TestKnownProviders(t *testing.T) {
	for _, k := range provider.Presets {
		if k.KeyVar == "" {
			continue
		}
		for from, s := range map[string]*provider.Settings{
			"environment": load(t, "", env(k.KeyVar, canary), ""),
			"file":        load(t, "providers: {"+k.Name+": {api_key: 'env:"+k.KeyVar+"', models: ["+k.Model+"]}}", env(k.KeyVar, canary), ""),
		} {
			d, name, window, err := s.Resolve("", "")
			if err != nil || d.Name() != k.Name || name != k.Model || window < k.Window {
				t.Errorf("%s from the %s: %v %q %d, %v", k.Name, from, d, name, window, err)
				continue
			}
			_, messages := d.(*anthropic.Driver)
			if _, chat := d.(*openai.Driver); messages != (k.API == "anthropic") || chat == messages {
				t.Errorf("%s from the %s has the driver %T", k.Name, from, d)
			}
		}
	}
}

// Windows are the model's, unless the file says otherwise.
func TestWindows(t *testing.T) {
	for yaml, want := range map[string]int{
		"providers: {anthropic: {}}":                         1_000_000,
		"providers: {anthropic: {context_window: 50000}}":    50_000,
		"providers: {mine: {base_url: 'http://x/v1'}}":       provider.DefaultContextWindow,
		"providers: {gemini: {models: [claude-opus-4-6]}}":   128_000,
		"providers: {moonshot: {models: [claude-opus-4-6]}}": 256_000,
	} {
		if _, _, window, err := load(t, yaml, env(), "").Resolve("", "claude-opus-4-6"); err != nil || window != want {
			t.Errorf("%s: %d, %v", yaml, window, err)
		}
	}
}

// Prices are those of the file and nobody's else; thinking reaches the call.
func TestPriceAndThinking(t *testing.T) {
	server := modeltest.New(t, modeltest.Say("fine"))
	s := load(t, `
providers:
  a:
    api: anthropic
    base_url: `+server.URL()+`
    thinking: 2048
    price:
      m: {input: 3, output: 15, cache_read: 0.3}
`, env(), "")
	p, ok := s.Price("a", "m")
	if !ok || p.Input != 3 || p.Output != 15 || p.CacheRead == nil || *p.CacheRead != 0.3 || p.CacheWrite != nil {
		t.Errorf("price %+v %v", p, ok)
	}
	for _, other := range [][2]string{{"a", "n"}, {"b", "m"}, {"offline", "offline"}} {
		if _, ok := s.Price(other[0], other[1]); ok {
			t.Errorf("%v has a price", other)
		}
	}
	d, _, _, err := s.Resolve("a", "m")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Generate(t.Context(), model.Request{Model: "m"}, nil); err != nil {
		t.Fatal(err)
	}
	if body := string(server.Requests()[0].Body); !strings.Contains(body, `"budget_tokens":2048`) {
		t.Errorf("sent %s", body)
	}
}
