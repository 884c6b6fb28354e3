package balance_test

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc/balance"
)

// H7: what is no address is refused as such, before a certificate is looked for.
func TestCheckTarget(t *testing.T) {
	for _, good := range []string{
		"unix:///run/registry.sock", "unix:/run/registry.sock", "unix:registry.sock", "unix:///a,b.sock", "dns:///host:7443", "dns:///10.0.0.5:7443", "dns:///[::1]:7443",
		"dns://8.8.8.8/host:7443", "dns:host:7443", "dns:///a:7443,dns:///b:7443", "dns:///a:7443, dns:///b:7443", "dns:///a:7443,b:7443",
	} {
		if err := balance.CheckTarget(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"foo", "", " ", "/run/registry.sock", "host:7443", "http://host:7443", "unix:", "unix://", "unix://foo", "dns:", "dns://", "dns:///", "dns:///host", "dns:///host:", "dns:///:7443",
		"dns:///host:x", "dns:///host:0", "dns:///host:70000", "dns://host:7443", "dns:///a:1,", "dns:///a:1,unix:///b", "a:1,b:2", strings.Repeat("x", 1<<20), "\xff\n",
	} {
		err := balance.CheckTarget(bad)
		if err == nil || fault.ExitCode(err) != 2 {
			t.Errorf("%.40q: %v", bad, err)
			continue
		}
		line := fault.Line(err)
		if !strings.Contains(line, "is not an address - use unix:///path or dns:///host:port") || len(line) > 1000 || strings.Contains(line, "\n") {
			t.Errorf("%.40q: %.400s", bad, line)
		}
	}
}
