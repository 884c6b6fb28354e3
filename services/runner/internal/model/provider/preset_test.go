package provider_test

import (
	"slices"
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
			asked := ""
			if from == "environment" && k.RegionOf != "" { // never the default
				asked = k.Name
			}
			d, name, window, err := s.Resolve(asked, "")
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

// S3-75: every name and alias of a provider means it, from the environment and from
// providers.yaml, with the address and the driver of the provider; without a key the error names
// the variable.
func TestProviderNames(t *testing.T) {
	for name, want := range map[string]struct{ driver, api, url, key string }{
		"claude":    {"anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"},
		"anthropic": {"anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"},
		"openai":    {"openai", "openai", "https://api.openai.com/v1", "OPENAI_API_KEY"},
		"gemini":    {"gemini", "openai", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"},
		"google":    {"gemini", "openai", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"},
		"deepseek":  {"deepseek", "openai", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"},
		"kimi":      {"kimi", "openai", "https://api.moonshot.cn/v1", "MOONSHOT_API_KEY"},
		"moonshot":  {"moonshot", "openai", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"},
		"minimax":   {"minimax", "openai", "https://api.minimax.io/v1", "MINIMAX_API_KEY"},
		"qwen":      {"qwen", "openai", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"},
		"dashscope": {"dashscope", "openai", "https://dashscope.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"},
		"ollama":    {"ollama", "openai", "http://127.0.0.1:11434/v1", ""},
	} {
		variables := env(want.key, canary, "OPENAI_API_KEY", canary)
		yaml := "providers: {" + name + ": {models: [m], api_key: 'env:OPENAI_API_KEY'}}"
		if want.key == "" {
			variables = env("OLLAMA_HOST", "127.0.0.1", "OLLAMA_MODEL", "m")
		}
		for from, s := range map[string]*provider.Settings{"environment": load(t, "", variables, ""), "file": load(t, yaml, env("OPENAI_API_KEY", canary), "")} {
			d, model, _, err := s.Resolve(name, "")
			if err != nil || model == "" {
				t.Errorf("%s from the %s: %v", name, from, err)
				continue
			}
			i := slices.IndexFunc(s.Providers(), func(p provider.Provider) bool { return p.Name == d.Name() })
			if p := s.Providers()[i]; p.API != want.api || p.BaseURL != want.url || from == "environment" && p.Name != want.driver {
				t.Errorf("%s from the %s: %s at %s with %s", name, from, p.Name, p.BaseURL, p.API)
			}
		}
		if _, _, _, err := load(t, "", env(), "").Resolve(name, ""); err == nil || !strings.Contains(err.Error(), "set "+want.key) {
			t.Errorf("%s without a key: %v", name, err)
		}
	}
	// What is called by one name in the file is found by the other, and a default may be an alias.
	s := load(t, "providers: {claude: {api_key: 'env:K', models: [m]}}", env("K", canary), "")
	if d, _, _, err := s.Resolve("anthropic", ""); err != nil || d.Name() != "claude" || s.Default != "claude" {
		t.Errorf("%v, %v, default %s", d, err, s.Default)
	}
	if s := load(t, "default: claude", env("ANTHROPIC_API_KEY", canary), ""); s.Default != "anthropic" {
		t.Errorf("the default is %s", s.Default)
	}
	// One key of two regions makes the first one the default.
	if s := load(t, "", env("DASHSCOPE_API_KEY", canary), ""); s.Default != "qwen" {
		t.Errorf("the default is %s", s.Default)
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

// S3-103: any provider that speaks the API of OpenAI may make text of speech, whatever models it lists; others are refused.
func TestTranscriber(t *testing.T) {
	var used []string
	s := load(t, "providers: {ears: {base_url: 'http://x/v1', api_key: 'env:KEY', models: [m]}, claude: {api: anthropic, base_url: 'http://x'}, keyless: {base_url: 'http://x/v1', api_key: 'env:NO'}, off: {api: offline}}\ndefault: ears", env("KEY", canary), "")
	s.OnKey = func(keys ...string) { used = append(used, keys...) }
	if d, err := s.Transcriber("ears"); err != nil || d.Name() != "ears" || len(used) != 1 || used[0] != canary {
		t.Errorf("%v, %v, keys %d", d, err, len(used))
	}
	named := load(t, "providers: {gemini: {api_key: 'env:KEY'}}", env("KEY", canary), "")
	if d, err := named.Transcriber("google"); err != nil || d.Name() != "gemini" {
		t.Errorf("by another name: %v, %v", d, err)
	}
	for name, want := range map[string]string{
		"claude": "makes no text of speech", "off": "makes no text of speech", "offline": "makes no text of speech", "nosuch": "is not configured: describe it", "deepseek": "set DEEPSEEK_API_KEY",
		"keyless": "NO is not set", "": "is not configured",
	} {
		if d, err := s.Transcriber(name); err == nil || !strings.Contains(err.Error(), want) || model.AsError(err).Recoverable() {
			t.Errorf("%q: %v, %v", name, d, err)
		}
	}
}
