package layer

import (
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/reference"
)

// Secret is a value that requests of agents may carry to some hosts. The value is with the runner; here is where
// it finds it.
type Secret struct {
	Name   string
	Ref    string   // env:NAME or file:PATH
	Hosts  []string // as in sandbox.network; at least one
	Agents []string // ids of the agents that may use it; none: all
}

// secretName is the form of a name: that of an environment variable.
var secretName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`) })

const (
	maxSecrets     = 100
	maxSecretHosts = 20
)

// For reports whether an agent may use a secret.
func (s Secret) For(agent string) bool {
	return len(s.Agents) == 0 || slices.Contains(s.Agents, agent)
}

func (l *layer) secrets(kv *ast.MappingValueNode, s *HomeSettings) {
	entries, ok := yamldoc.Pairs(kv.Value)
	switch {
	case !ok && kv.Value.Type() != ast.NullType:
		l.fail(kv.Value, "secrets", "secrets wants the name of a secret with ref and hosts below it")
	case len(entries) > maxSecrets:
		l.fail(kv, "secrets", fmt.Sprintf("there are %d secrets, and %d are the most", len(entries), maxSecrets))
		return
	}
	for _, entry := range entries {
		one := Secret{Name: written(entry)}
		full := "secrets." + config.Clip(one.Name)
		at := map[string]ast.Node{}
		before := len(*l.problems)
		l.object(entry.Value, full, map[string]any{"ref": &one.Ref, "hosts": &one.Hosts, "agents": &one.Agents}, at)
		if attribute, problem := one.problem(); problem != "" && len(*l.problems) == before {
			l.fail(orElse(at[attribute], entry), full, full+": "+problem)
		}
		s.Secrets = append(s.Secrets, one)
	}
}

// problem is what is wrong with a secret, and with which attribute; empty: nothing.
func (s Secret) problem() (attribute, problem string) {
	if !secretName().MatchString(s.Name) {
		return "", "the name of a secret has letters, digits and _, at most 64"
	}
	if !reference.Is(s.Ref) {
		return "ref", "ref must be env:NAME or file:PATH, so that the value is not in this file"
	}
	if len(s.Hosts) == 0 || len(s.Hosts) > maxSecretHosts {
		return "hosts", fmt.Sprintf("hosts must name 1 to %d hosts to which the secret may be sent", maxSecretHosts)
	}
	if _, err := egress.Parse(s.Hosts); err != nil {
		return "hosts", err.Error()
	}
	for _, id := range s.Agents {
		if !config.IsID(id) {
			return "agents", fmt.Sprintf("%q is not the id of an agent", config.Clip(id))
		}
	}
	return "", ""
}
