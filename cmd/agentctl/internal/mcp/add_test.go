package mcp

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// S3-55, S4-67: what the preset of the browser writes into the settings: one version of the server, the browser that
// Debian has, what both read of the machine, and time for a page; what was tried is in docs/tools.md.
func TestPreset(t *testing.T) {
	one, flow, err := (&addition{preset: "playwright", paths: []string{"/opt/ca"}}).server("browser", nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "{command: [npx, '--yes', '@playwright/mcp@0.0.83', '--headless', '--isolated', '--no-sandbox', '--executable-path', '/usr/bin/chromium'], " +
		"network: open, paths: ['/etc/chromium.d', '/etc/fonts', '/opt/ca'], timeout: '2m'}"
	if flow != want {
		t.Errorf("the settings get %s", flow)
	}
	if one.Name != "browser" || len(one.Command) != 8 || !one.Network.Open || one.Timeout != 2*time.Minute || one.Unconfined || !slices.Equal(one.Paths, []string{"/etc/chromium.d", "/etc/fonts", "/opt/ca"}) {
		t.Errorf("they are read as %+v", one)
	}
	one, _, err = (&addition{preset: "playwright", network: "example.com,example.org"}).server("browser", nil)
	if err != nil || one.Network.Open || !slices.Equal(one.Network.Hosts, []string{"example.com", "example.org"}) {
		t.Errorf("with hosts: %+v, %v", one.Network, err)
	}
	for want, a := range map[string]*addition{
		"leave the other one out":   {preset: "playwright", url: "https://example.org/"},
		"leave --no-sandbox out":    {preset: "playwright", noSandbox: true},
		"give either command, the ": {},
	} {
		if _, _, err := a.server("browser", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", a, err)
		}
	}
}

// A preset that cannot be started says what it needs; another failure stays what it is.
func TestPresetNeeds(t *testing.T) {
	a := &addition{preset: "playwright"}
	down := fault.New(codes.Unavailable, fault.McpUnavailable, "it does not run", "correct its command")
	const want = "it needs npm and Chromium where the runner is, on Debian from 'apt install npm chromium', and the registry of npm at its first start; then run 'agentctl mcp test browser --agent alice'"
	if f := fault.From(a.explain(down, "browser", "alice")); f.Fix != want || f.What != down.What || f.Reason != down.Reason {
		t.Errorf("%+v", f)
	}
	missing := fault.New(codes.FailedPrecondition, fault.SecretMissing, "no secret", "add it")
	if err := a.explain(missing, "browser", "alice"); !errors.Is(err, missing) {
		t.Errorf("another failure: %v", err)
	}
	if err := (&addition{}).explain(down, "browser", "alice"); !errors.Is(err, down) {
		t.Errorf("without a preset: %v", err)
	}
}
