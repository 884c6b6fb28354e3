// Package texts owns the words a new agent starts with: IDENTITY.md, which opens its
// prompt, USAGE.md, which tells others what it is for, and a config.yaml with comments. The first paragraph of a
// USAGE.md is a summary that can stand alone in a list.
//
// They name only what exists: the sandboxed bash_exec tool, the memory files, messages.
// They are a beginning; the owner edits the copies in the agent's directory.
package texts

import (
	"bytes"
	"embed"
	"fmt"
	"slices"

	"github.com/theclaw/agents/internal/agentdir/config"
)

//go:embed */IDENTITY.md */USAGE.md
var files embed.FS

// Preset is an agent as it is first made.
type Preset struct {
	ID, Kind        string
	Identity, Usage []byte
}

var system = []string{"admin", "warden", "maintainer", "evolver"}

// SystemAgents returns the agents that a bootstrap makes, in this order: admin (speaks
// with people), warden (security), maintainer (upkeep), evolver (improvement).
func SystemAgents() []Preset {
	presets := make([]Preset, 0, len(system))
	for _, id := range system {
		presets = append(presets, load(id, "system", id))
	}
	return presets
}

// For returns the texts for an id: those of the system agent of this name, else those
// of a user agent with the id filled in.
func For(id string) Preset {
	if slices.Contains(system, id) {
		return load(id, "system", id)
	}
	return load(id, "user", "user")
}

func load(id, kind, dir string) Preset {
	read := func(name string) []byte {
		data, err := files.ReadFile(dir + "/" + name)
		if err != nil {
			panic("texts: " + err.Error()) // embedded: missing only in a broken build
		}
		return bytes.ReplaceAll(data, []byte("{{id}}"), []byte(id))
	}
	return Preset{ID: id, Kind: kind, Identity: read("IDENTITY.md"), Usage: read("USAGE.md")}
}

// Config writes the settings file of a new agent: only what is given, so that
// theclaw.yaml can still speak for the rest. An empty kind is user.
func Config(id, kind, provider, model string) []byte {
	if kind == "" {
		kind = "user"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Settings of agent %s. A key that is missing has its default, or the value that\n"+
		"# theclaw.yaml gives; 'agentctl config effective %s' shows each with its origin.\n"+
		"agent_id: %s\nkind: %s\n", id, id, config.Quote(id), config.Quote(kind))
	if provider != "" || model != "" {
		b.WriteString("pai:\n")
		if provider != "" {
			fmt.Fprintf(&b, "  provider: %s\n", config.Quote(provider))
		}
		if model != "" {
			fmt.Fprintf(&b, "  model: %s\n", config.Quote(model))
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
