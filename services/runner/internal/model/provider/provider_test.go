package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/model/offline"
	"github.com/theclaw/agents/services/runner/internal/model/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is a key that must show up nowhere (I15).
const canary = "sk-canary-5f3a9c"

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// write puts a file into a new directory.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, yaml string, getenv func(string) string, pai string) *provider.Settings {
	t.Helper()
	path := ""
	if yaml != "" {
		path = write(t, "providers.yaml", yaml)
	}
	s, err := provider.Load(path, getenv, pai)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const twoProviders = `
default: work
providers:
  work:
    base_url: https://llm.example.com/v1
    api_key: env:WORK_KEY
    models: [large, small]
    context_window: 64000
  spare:
    api: offline
`

// A provider comes from providers.yaml, then the environment, then pai, then offline;
// the result says which and why.
func TestOrderOfSources(t *testing.T) {
	pai, err := filepath.Abs("testdata/pai.json")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	inHome := filepath.Join(home, ".config", "pai")
	if err := os.MkdirAll(inHome, 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(pai)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inHome, "default.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, yaml string
		env        []string
		pai        string
		want       string
		source     provider.Source
		hint       string
	}{
		{"all", twoProviders, []string{"OPENAI_API_KEY", canary}, pai, "work", provider.FromFile, "model: work large (providers.yaml names it)"},
		{"only one in the file", "providers: {a: {base_url: 'http://x/v1'}}", nil, "", "a", provider.FromFile, "model: a ("},
		{"file chooses offline", "default: offline", []string{"OPENAI_API_KEY", canary}, "", "offline", provider.FromFile, "model: offline (providers.yaml names it)"},
		{"file chooses the environment's", "default: deepseek", []string{"OPENAI_API_KEY", canary, "DEEPSEEK_API_KEY", canary}, "", "deepseek", provider.FromFile, "model: deepseek deepseek-chat"},
		{"empty file", "providers: {}", []string{"OPENAI_API_KEY", canary}, "", "openai", provider.FromEnvironment, "OPENAI_API_KEY is set"},
		{"environment", "", []string{"OPENAI_API_KEY", canary}, pai, "openai", provider.FromEnvironment, "model: openai gpt-4o (OPENAI_API_KEY is set)"},
		{"own server", "", []string{"OPENAI_BASE_URL", "http://10.0.0.1/v1", "OPENAI_MODEL", "mine"}, "", "openai", provider.FromEnvironment, "model: openai mine (OPENAI_BASE_URL is set)"},
		{"deepseek", "", []string{"DEEPSEEK_API_KEY", canary}, "", "deepseek", provider.FromEnvironment, "DEEPSEEK_API_KEY"},
		{"moonshot", "", []string{"MOONSHOT_API_KEY", canary}, "", "moonshot", provider.FromEnvironment, "MOONSHOT_API_KEY"},
		{"ollama", "", []string{"OLLAMA_HOST", "127.0.0.1", "OLLAMA_MODEL", "m"}, "", "ollama", provider.FromEnvironment, "model: ollama m"},
		{"pai by name", "", nil, pai, "fake", provider.FromPai, "pai configuration"},
		{"pai by PAI_CONFIG", "", []string{"PAI_CONFIG", pai}, "", "fake", provider.FromPai, "pai configuration"},
		{"pai at home", "", []string{"HOME", home}, "", "fake", provider.FromPai, "model: fake fake-model (the pai"},
		{"fresh machine", "", []string{"HOME", t.TempDir()}, "", "offline", provider.FromNowhere, "no language model"},
		{"ollama without a model", "", []string{"OLLAMA_HOST", "127.0.0.1"}, "", "offline", provider.FromNowhere, "no language model"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, tt.yaml, env(tt.env...), tt.pai)
			if s.Default != tt.want || s.Source != tt.source || s.Why == "" || !strings.Contains(s.Hint(), tt.hint) {
				t.Errorf("default %s from %s; %s", s.Default, s.Source, s.Hint())
			}
			if strings.Contains(s.Hint(), "\n") {
				t.Errorf("the hint has more than a line: %q", s.Hint())
			}
			if tt.want != "offline" {
				if tt.name == "all" {
					return // its key is not set
				}
				if _, _, _, err := s.Resolve("", ""); err != nil && tt.name != "only one in the file" {
					t.Errorf("the default does not resolve: %v", err)
				}
			}
		})
	}
	if s := load(t, "", env("OLLAMA_HOST", "x"), ""); len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "OLLAMA_MODEL") {
		t.Errorf("notes %q", s.Notes)
	}
	// All sources together, for doctor.
	s := load(t, twoProviders, env("OPENAI_API_KEY", canary), pai)
	var names []string
	for _, p := range s.Providers() {
		names = append(names, fmt.Sprintf("%s/%s", p.Name, p.Source))
	}
	if got := strings.Join(names, " "); got != "dead/pai configuration fake/pai configuration nokey/pai configuration offline/built in openai/environment spare/providers.yaml work/providers.yaml" {
		t.Errorf("providers: %s", got)
	}
}

// S0-41: provider and model reach the call; what is unknown is an error that
// no retry helps; offline is always offline.
func TestResolve(t *testing.T) {
	s := load(t, twoProviders, env("WORK_KEY", canary, "OPENAI_API_KEY", canary), "testdata/pai.json")
	for _, tt := range []struct {
		provider, model  string
		driver, resolved string
		window           int
	}{
		{"", "", "work", "large", 64000},
		{"", "small", "work", "small", 64000},
		{"openai", "gpt-4o-mini", "openai", "gpt-4o-mini", 128000},
		{"openai", "", "openai", "gpt-4o", 128000},
		{"offline", "gpt-4o", "offline", "offline", offline.ContextWindow},
		{"spare", "", "offline", "offline", 128000},
		{"fake", "", "fake", "fake-model", 128000},
		{"fake", "another", "fake", "another", 128000},
		{"nokey", "", "nokey", "fake-model", 128000},
	} {
		d, name, window, err := s.Resolve(tt.provider, tt.model)
		if err != nil || d.Name() != tt.driver || name != tt.resolved || window != tt.window {
			t.Errorf("%s/%s: %v %q %d, %v", tt.provider, tt.model, d, name, window, err)
		}
	}
	for _, tt := range []struct {
		provider, model, text string
		class                 model.Class
	}{
		{"zzz", "", `"zzz" is not configured`, model.Config},
		{"deepseek", "", "set DEEPSEEK_API_KEY", model.Config},
		{"ollama", "", "set OLLAMA_HOST and OLLAMA_MODEL", model.Config},
		{"work", "huge", "large, small", model.Config},
	} {
		d, _, _, err := s.Resolve(tt.provider, tt.model)
		e := model.AsError(err)
		if e == nil || e.Class != tt.class || e.Recoverable() || !strings.Contains(err.Error(), tt.text) || d != nil {
			t.Errorf("%s/%s: %v", tt.provider, tt.model, err)
		}
	}
	// Nobody else can be offline.
	pretender := load(t, "", env(), write(t, "default.json", `{"providers":[{"name":"offline","baseUrl":"http://x/v1","defaultModel":"m"}]}`))
	if all := pretender.Providers(); len(all) != 1 || all[0].Source != provider.FromNowhere {
		t.Errorf("a provider that calls itself offline: %+v", all)
	}
	// A provider that is named and not there never becomes the offline model.
	fresh := load(t, "", env(), "")
	if d, _, _, err := fresh.Resolve("openai", "gpt-4o"); err == nil {
		t.Errorf("openai without a key became %s", d.Name())
	}
	if d, _, _, err := fresh.Resolve("", ""); err != nil || d.Name() != offline.Name {
		t.Errorf("a fresh machine: %v", err)
	}
}

// Keys are read at each Resolve, from the place that is named, and reach the
// provider.
func TestKeys(t *testing.T) {
	server := modeltest.New(t, modeltest.Step{Repeat: true, Text: []string{"ok"}})
	path := write(t, "providers.yaml", fmt.Sprintf(`
default: a
providers:
  a: {base_url: %[1]q, api_key: "file:key", models: [m]}
  b: {base_url: %[1]q, api_key: "file:~/key", models: [m]}
  c: {base_url: %[1]q, api_key: "env:KEY_C", models: [m]}
  d: {base_url: %[1]q, models: [m]}
`, server.URL()))
	keyFile := filepath.Join(filepath.Dir(path), "key")
	s, err := provider.Load(path, env("HOME", filepath.Dir(path), "KEY_C", "key-of-c"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	call := func(name string) string {
		t.Helper()
		d, m, _, err := s.Resolve(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Generate(t.Context(), model.Request{Model: m}, nil); err != nil {
			t.Fatal(err)
		}
		requests := server.Requests()
		return requests[len(requests)-1].Header.Get("Authorization")
	}
	for _, text := range []string{"", "one\ntwo", strings.Repeat("x", 20<<10)} {
		if err := os.WriteFile(keyFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := s.Resolve("a", ""); model.AsError(err) == nil || model.AsError(err).Class != model.Auth {
			t.Errorf("key file %.10q: %v", text, err)
		}
	}
	for _, key := range []string{"first", "rotated"} {
		if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if a, b := call("a"), call("b"); a != "Bearer "+key || b != a {
			t.Errorf("sent %q and %q", a, b)
		}
	}
	if c, d := call("c"), call("d"); c != "Bearer key-of-c" || d != "" {
		t.Errorf("sent %q and %q", c, d)
	}
	if err := os.Chmod(keyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.Resolve("a", ""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key file that others can read: %v", err)
	}
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.Resolve("a", ""); model.AsError(err) == nil {
		t.Error("a missing key file was not noticed")
	}
}
