package main

import (
	"os"
	"path/filepath"
	"strings"
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
