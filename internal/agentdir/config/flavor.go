package config

import (
	"slices"

	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// FlavorDefault is a default value of one flavor, as it is typed.
type FlavorDefault struct{ Key, Value string }

// flavors are the values by which the flavors differ from [Default]; theclaw has none.
var flavors = map[string][]FlavorDefault{
	"openclaw": {
		{"session.dm_scope", "main"},
		{"session.reset.mode", ResetDaily},
		{"routing.groups", "per-conversation"},
		{"queue.debounce", "500ms"},
		{"tools.profile", toolpolicy.Full},
		{"tools.presentation", toolpolicy.Openclaw},
		{"tools.exec.yield", "10s"},
		{"tools.web_fetch.max_chars", "50000"},
		{"tools.web_search.provider", searchAuto},
		{"sandbox.mode", SandboxNonMain},
		{"sandbox.workspace_access", AccessNone},
		{"tools.sandbox.tools.allow", FlowList(toolpolicy.SandboxAllow)},
		{"tools.sandbox.tools.deny", FlowList(toolpolicy.SandboxDeny)},
		{"tools.exec.security", string(execpolicy.Allowlist)},
		{"tools.exec.ask", string(execpolicy.AskOnMiss)},
		{"tools.external_guard", "[" + GuardHost + "]"},
	},
	"agentclaw": {
		{"verbose_default", VerboseOn},
		{"reasoning_default", ReasoningStream},
		{"reply.usage_footer", FooterFull},
		{"tools.profile", toolpolicy.Agentclaw},
		{"tools.presentation", toolpolicy.Agentclaw},
		{"tools.exec.timeout", "30s"},
		{"tools.web_search.provider", searchAuto},
		{"routing.groups", "per-conversation"},
		{"tools.exec.security", string(execpolicy.Allowlist)},
		{"tools.exec.ask", string(execpolicy.AskOnMiss)},
		{"tools.external_guard", "[" + GuardHost + "]"},
	},
}

// FlavorDefaults returns the default values of a flavor that differ from [Default].
func FlavorDefaults(flavor string) []FlavorDefault { return slices.Clone(flavors[flavor]) }

// Flavors returns the names of the flavors; the first is the default.
func Flavors() []string { return Lookup("flavor").Rule.Words }
