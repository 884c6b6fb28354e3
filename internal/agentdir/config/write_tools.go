package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/toolpolicy"
)

// FlowProvider writes an entry of tools.by_provider on one line of YAML.
func FlowProvider(p toolpolicy.Provider) string {
	var parts []string
	if p.Profile != "" {
		parts = append(parts, "profile: "+Quote(p.Profile))
	}
	for _, l := range []struct {
		key  string
		list []string
	}{{"allow", p.Allow}, {"also_allow", p.AlsoAllow}, {"deny", p.Deny}} {
		if len(l.list) > 0 {
			parts = append(parts, l.key+": "+FlowList(l.list))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func flowProviders(p toolpolicy.Providers) string {
	parts := make([]string, 0, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, Quote(name)+": "+FlowProvider(p[name]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
