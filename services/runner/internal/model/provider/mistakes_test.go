package provider_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/offline"
	"github.com/theclaw/agents/services/runner/internal/model/provider"
)

func TestBadFiles(t *testing.T) {
	for _, tt := range []struct{ name, yaml, want string }{
		{"key itself", "providers: {a: {base_url: 'http://x/v1', api_key: " + canary + "}}", "and not the key itself"},
		{"key behind env", "providers: {a: {base_url: 'http://x/v1', api_key: 'env:" + canary + "'}}", "and not the key itself"},
		{"unknown key", "providers:\n  a:\n    api_key: " + canary + "\n    apikey: " + canary + "\n", `providers.yaml:4:5: unknown key "apikey"`},
		{"top level", "provider: {}", `providers.yaml:1:1: unknown key "provider"`},
		{"not YAML", "providers: [" + canary, "providers.yaml"},
		{"alias", "providers: *" + canary, "providers.yaml"},
		{"wrong shape", "providers: " + canary, "providers.yaml"},
		{"wrong type", "providers: {a: {context_window: " + canary + "}}", "providers.yaml:1:33: context_window must be a number"},
		{"twice", "providers: {a: {api: offline}, a: {api: offline}}", "providers.yaml:1:32: this is not valid"},
		{"api", "providers: {a: {api: soap}}", "api must be"},
		{"no address", "providers: {a: {models: [m]}}", "base_url must be"},
		{"credentials in the address", "providers: {a: {base_url: 'https://u:" + canary + "@x/v1'}}", "base_url must be"},
		{"offline taken", "providers: {offline: {base_url: 'http://x/v1'}}", "built-in"},
		{"negative window", "providers: {a: {base_url: 'http://x/v1', context_window: -1}}", "context_window"},
		{"unnamed model", "providers: {a: {base_url: 'http://x/v1', models: ['']}}", "no name"},
		{"slash", "providers: {a/b: {api: offline}}", "slash"},
		{"thinking of another api", "providers: {a: {base_url: 'http://x/v1', thinking: adaptive}}", "api anthropic only"},
		{"thinking", "providers: {a: {api: anthropic, base_url: 'http://x', thinking: '12'}}", "from 1024"},
		{"unknown price", "providers:\n  a:\n    base_url: http://x/v1\n    price:\n      m: {inptu: 3}\n", `providers.yaml:5:11: unknown key "inptu"`},
		{"half a price", "providers: {a: {base_url: 'http://x/v1', price: {m: {input: 3}}}}", "needs input and output"},
		{"negative price", "providers: {a: {base_url: 'http://x/v1', price: {m: {input: -3, output: 1}}}}", "not a number"},
		{"no default", "providers: {a: {api: offline}, b: {api: offline}}", "default must name"},
		{"unknown default", "default: c\nproviders: {a: {api: offline}}", `default "c" is not`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := provider.Load(write(t, "providers.yaml", tt.yaml), env("OPENAI_API_KEY", canary), "")
			e := model.AsError(err)
			if e == nil || e.Class != model.Config || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, e.Err), canary) {
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
	// A path that cannot be read is not a missing file.
	if _, err := provider.Load(t.TempDir(), env(), ""); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a directory: %v", err)
	}
}

// A pai configuration counts only when nothing before it does.
func TestBadPai(t *testing.T) {
	broken := write(t, "default.json", `{"providers":[{"name":"a","apiKey":`+canary)
	if _, err := provider.Load("", env(), broken); err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("broken: %v", err)
	}
	if _, err := provider.Load("", env("PAI_CONFIG", broken+".gone"), ""); err == nil {
		t.Error("a PAI_CONFIG that is not there was not noticed")
	}
	s, err := provider.Load("", env("OPENAI_API_KEY", "k"), broken)
	if err != nil || s.Default != "openai" || len(s.Notes) != 1 || strings.Contains(s.Notes[0], canary) {
		t.Errorf("not needed: %v %v", s, err)
	}
	other := load(t, "", env(), write(t, "default.json",
		`{"defaultProvider":"c","providers":[{"name":"c","api":"google-generative-ai","apiKey":"`+canary+`","models":[{"id":"m"}]},{"name":""}]}`))
	if other.Default != offline.Name || len(other.Notes) != 1 {
		t.Errorf("an api we do not speak: %s, notes %q", other.Default, other.Notes)
	}
	if _, _, _, err := other.Resolve("c", "m"); model.AsError(err) == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("resolve: %v", err)
	}
}

func TestOllamaAddresses(t *testing.T) {
	for host, want := range map[string]string{
		"127.0.0.1":            "http://127.0.0.1:11434/v1",
		"0.0.0.0:8080":         "http://127.0.0.1:8080/v1",
		":9000":                "http://127.0.0.1:9000/v1",
		"box":                  "http://box:11434/v1",
		"https://box.example":  "https://box.example:443/v1",
		"http://box:1/ollama/": "http://box:1/ollama/v1",
		"http://box:1/v1":      "http://box:1/v1",
		"[::]:7":               "http://127.0.0.1:7/v1",
	} {
		s := load(t, "", env("OLLAMA_HOST", host, "OLLAMA_MODEL", "m", "OLLAMA_CONTEXT_LENGTH", "8192"), "")
		i := slices.IndexFunc(s.Providers(), func(p provider.Provider) bool { return p.Name == "ollama" })
		if i < 0 {
			t.Fatalf("%s: no provider", host)
		}
		if p := s.Providers()[i]; p.BaseURL != want || p.ContextWindow != 8192 {
			t.Errorf("%s: %s (%d), want %s", host, p.BaseURL, p.ContextWindow, want)
		}
	}
}

// I15: however settings and drivers are printed, no key is seen.
func TestNothingPrintsAKey(t *testing.T) {
	s := load(t, "", env("OPENAI_API_KEY", canary), write(t, "default.json",
		`{"providers":[{"name":"p","apiKey":"`+canary+`","baseUrl":"http://x/v1","defaultModel":"m"}]}`))
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, s) + fmt.Sprintf(format, s.Providers()) + fmt.Sprintf(format, *s); strings.Contains(text, canary) {
			t.Errorf("%s shows the key", format)
		}
	}
}
