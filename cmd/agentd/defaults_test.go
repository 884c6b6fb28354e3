package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// F20: no service starts with an invalid theclaw.yaml, whatever its flags are: a registry
// that is given its database is one of them.
func TestAnInvalidDefaultsFileEndsEachStart(t *testing.T) {
	for _, args := range [][]string{
		{"all"}, {"registry"}, {"registry", "--dsn", "env:DSN"}, {"runner"}, {"deliverer"}, {"runner", "--registry", "dns:///127.0.0.1:1"},
	} {
		site := world.NewSite(t, program(t))
		if err := os.MkdirAll(site.Home, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), []byte("default:\n  model: x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := site.StartWith(t, []string{"DSN=postgres://claw@127.0.0.1:1/one"}, args...)
		p.Says("theclaw.yaml:1:1: unknown key")
		if code := p.Exit(); code != 1 || strings.Contains(p.Log(), "serving") {
			t.Errorf("%v: exit %d: %s", args, code, p.Log())
		}
	}
}

// What is no address of a registry ends a worker at once, as a wrong command line.
func TestARegistryThatIsNoAddress(t *testing.T) {
	for _, target := range []string{"foo", "host:7443", "unix://foo", "dns:///host"} {
		p := world.NewSite(t, program(t)).Start(t, "runner", "--registry", target)
		if code := p.Exit(); code != 2 || !strings.Contains(p.Log(), "\""+target+"\" is not an address - use unix:///path or dns:///host:port") {
			t.Errorf("%s: exit %d, %s", target, code, p.Log())
		}
	}
}

// H3: a default provider without its key is reported at the start; other agents may name
// other providers, so the services serve.
func TestADefaultModelWithoutItsKey(t *testing.T) {
	site := world.NewSite(t, program(t))
	if err := os.MkdirAll(site.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	const settings = "providers:\n  work:\n    base_url: http://127.0.0.1:9/v1\n    api_key: env:NO_SUCH_KEY\n    models: [m1]\n"
	if err := os.WriteFile(filepath.Join(site.Home, "providers.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	p := site.Start(t, "all")
	site.Serving(t, p, everything...)
	for _, want := range []string{"level=WARN msg=\"the default model cannot be used", `the key of provider \"work\": the environment variable NO_SUCH_KEY is not set`} {
		if !strings.Contains(p.Log(), want) {
			t.Errorf("%q is not in %s", want, p.Log())
		}
	}
	p.Signal(syscall.SIGTERM)
	p.Exit()
}
