package agentdir

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"slices"

	"github.com/theclaw/agents/internal/agentdir/config"
)

//go:embed templates/*/*.md
var templates embed.FS

// Preset holds the texts that a new agent starts with: IDENTITY.md, which opens its
// prompt, and USAGE.md, which describes for others what it is for and whose first paragraph is a
// summary that can stand alone in a list. They name only what exists: the sandboxed
// bash_exec tool, the memory files, messages. The owner edits the copies in the agent's
// directory.
type Preset struct {
	ID, Kind        string
	Identity, Usage []byte
}

var systemAgents = []string{"admin", "warden", "maintainer", "evolver"}

// SystemAgents returns the agents that a bootstrap makes, in this order: admin (speaks
// with people), warden (security), maintainer (upkeep), evolver (improvement).
func SystemAgents() []Preset {
	presets := make([]Preset, 0, len(systemAgents))
	for _, id := range systemAgents {
		presets = append(presets, presetFor(id))
	}
	return presets
}

// presetFor returns the texts for an id: those of the system agent with this name, else
// those of a user agent with the id filled in.
func presetFor(id string) Preset {
	kind, dir := "user", "user"
	if slices.Contains(systemAgents, id) {
		kind, dir = "system", id
	}
	read := func(name string) []byte {
		data, err := templates.ReadFile("templates/" + dir + "/" + name)
		if err != nil {
			panic("agentdir: " + err.Error()) // embedded: missing only in a broken build
		}
		return bytes.ReplaceAll(data, []byte("{{id}}"), []byte(id))
	}
	return Preset{ID: id, Kind: kind, Identity: read("IDENTITY.md"), Usage: read("USAGE.md")}
}

// configText returns the config.yaml of a new agent, with comments. It sets only what is
// given, so that theclaw.yaml still decides the rest. An empty kind is user.
func configText(id string, s Spec) []byte {
	kind := cmp.Or(s.Kind, "user")
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Settings of agent %s. A key that is missing has its default, or the value that\n"+
		"# theclaw.yaml gives; 'agentctl config effective %s' shows each with its origin.\n"+
		"agent_id: %s\nkind: %s\n", id, id, config.Quote(id), config.Quote(kind))
	if s.Provider != "" || s.Model != "" {
		b.WriteString("pai:\n")
		if s.Provider != "" {
			fmt.Fprintf(&b, "  provider: %s\n", config.Quote(s.Provider))
		}
		if s.Model != "" {
			fmt.Fprintf(&b, "  model: %s\n", config.Quote(s.Model))
		}
	}
	if s.Profile != "" {
		fmt.Fprintf(&b, "tools:\n  profile: %s\n", config.Quote(s.Profile))
		if len(s.AlsoAllow) > 0 {
			fmt.Fprintf(&b, "  also_allow: %s\n", config.FlowList(s.AlsoAllow))
		}
	}
	b.WriteString(`
# routing:
#   default: per-peer        # per-peer, per-channel or per-agent
# outbound: []               # send nothing; without the key everything goes through xgw
# retry:
#   max_attempts: 3          # of a model call
# sandbox:
#   network: false           # may the agent's programs use the network?
`)
	return b.Bytes()
}
