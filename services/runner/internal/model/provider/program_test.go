package provider_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/provider"
)

// S0-77: pai and pai/NAME mean the program, with what its own configuration says
// and the part of the environment it needs; no other name does, and no other key
// goes along.
func TestProgram(t *testing.T) {
	getenv := env("PATH", "/bin", "FAKE_API_KEY", "k", "OPENAI_API_KEY", canary, "THECLAW_TOKEN", canary)
	s := load(t, "", getenv, "testdata/pai.json")
	for _, tt := range []struct {
		provider, model string
		called, as      string
	}{
		{"pai", "", "fake", "fake-model"},
		{"pai/fake", "large", "fake", "large"},
		{"pai/dead", "", "dead", "fake-model"},
		{"pai/elsewhere", "m", "elsewhere", "m"}, // pai itself may know it
	} {
		p, ok, err := s.Program(tt.provider, tt.model)
		if err != nil || !ok || p.Name != tt.provider || p.Command != "pai" || p.Provider != tt.called || p.Model != tt.as || p.ContextWindow <= 0 {
			t.Errorf("%s/%s: %+v, %t, %v", tt.provider, tt.model, p, ok, err)
		}
	}
	p, _, _ := s.Program("pai/fake", "")
	if got := slices.Sorted(maps.Keys(p.Env)); !slices.Equal(got, []string{"FAKE_API_KEY", "PAI_CONFIG", "PATH"}) {
		t.Errorf("environment %q", got)
	}
	for _, name := range []string{"", "fake", "openai", "offline", "paint", "pai/"} {
		if _, ok, err := s.Program(name, ""); ok || err != nil {
			t.Errorf("%q is the program, %v", name, err)
		}
	}
	if _, ok, err := s.Program("pai/elsewhere", ""); !ok || model.AsError(err) == nil || model.AsError(err).Class != model.Config {
		t.Errorf("no model: %t, %v", ok, err)
	}
	bare := load(t, "", env("PAI_COMMAND", "/opt/pai"), "")
	if _, ok, err := bare.Program("pai", "m"); !ok || err == nil || !strings.Contains(err.Error(), "pai/NAME") {
		t.Errorf("without a configuration: %t, %v", ok, err)
	}
	if p, ok, err := bare.Program("pai/x", "m"); !ok || err != nil || p.Command != "/opt/pai" || len(p.Env) != 0 {
		t.Errorf("%+v, %t, %v", p, ok, err)
	}
	// providers.yaml may make it the default, and may take the name for itself.
	chosen := load(t, "default: pai/fake", getenv, "testdata/pai.json")
	if p, ok, err := chosen.Program("", ""); !ok || err != nil || p.Provider != "fake" || chosen.Source != provider.FromFile {
		t.Errorf("as the default: %+v, %t, %v", p, ok, err)
	}
	if _, ok, _ := load(t, "providers: {pai: {base_url: 'http://x/v1'}}", getenv, "").Program("pai", "m"); ok {
		t.Error("a provider that is called pai is taken for the program")
	}
}
