package shell

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/egress/proxy"
	"github.com/theclaw/agents/internal/netguard"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// networkSetting is the setting with the hosts of the commands of an agent.
const networkSetting = "sandbox.network"

// permit lets a command reach the hosts of a setting, where it has no other network: at addresses that are
// public, or that http_request may reach as well.
func (t *Tool) permit(c toolset.Call, command *sandbox.Command, setting string, list []string) error {
	if len(list) == 0 || command.Network || c.Place.Config.GetSandboxMode() == string(sandbox.Off) {
		return nil
	}
	hosts, err := egress.Parse(list)
	if err != nil { // the registry has another rule
		return err
	}
	var guard netguard.Guard
	for _, text := range c.Place.Config.GetHttp().GetAllowPrivate() {
		if p, err := netip.ParsePrefix(text); err == nil { // what cannot be read permits nothing
			guard.Allow = append(guard.Allow, p)
		}
	}
	logged := once(func(host string) {
		t.logger().InfoContext(context.Background(), "a program wanted to reach a host that its settings do not name", "agent_id", c.Place.AgentID, "tool", c.Name, "call_key", c.Key, "host", host)
	})
	through := proxy.New(hosts, setting, guard, func(host string) {
		if t.Meter != nil {
			t.Meter.AddEgressRefused()
		}
		logged(host)
	})
	command.Through(through.Serve)
	return nil
}

func (t *Tool) logger() *slog.Logger {
	if t.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return t.Logger
}

// once calls f once for each host, for the first hundred.
func once(f func(host string)) func(host string) {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(host string) {
		mu.Lock()
		defer mu.Unlock()
		if !seen[host] && len(seen) < egress.MaxHosts {
			seen[host] = true
			f(host)
		}
	}
}
