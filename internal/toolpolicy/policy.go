package toolpolicy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Layer is one policy. Blank entries are ignored.
type Layer struct {
	// Number and Name are for people, such as 1 and: profile "coding". Number 0: it has none.
	Number int
	Name   string
	// Origin is the setting that has the lists, such as tools; empty: they are built in.
	Origin      string
	Allow, Deny []string
	// Provider is the model for which the layer holds, as a key of [Providers]; empty: all.
	Provider string
}

// Scope holds the tool settings of one home or of one agent.
type Scope struct {
	Allow, AlsoAllow, Deny []string
}

// The numbers of the layers, in the order in which they decide.
const (
	NumberProfile = iota + 1
	NumberProviderProfile
	NumberHome
	NumberHomeProvider
	NumberAgent
	NumberAgentProvider
	NumberConversation
	NumberSandbox
)

// entry is the form of an entry in the settings.
var entry = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_:.*-]{1,128}$`) })

// MaxEntries bounds a list of entries.
const MaxEntries = 200

// Check returns what is wrong with the entries of a list in the settings; empty: nothing.
// A name without a tool is no problem: its tool may come later.
func Check(entries []string) string {
	if len(entries) > MaxEntries {
		return fmt.Sprintf("%d entries, and %d are the most", len(entries), MaxEntries)
	}
	for _, e := range entries {
		group := strings.ToLower(strings.TrimSpace(e))
		switch {
		case strings.TrimSpace(e) == "":
		case strings.HasPrefix(group, "group:"):
			if _, ok := groups[group]; !ok {
				return fmt.Sprintf("there is no group %.80q; the groups are %s", e, strings.Join(Groups(), ", "))
			}
		case !entry().MatchString(strings.TrimSpace(e)):
			return fmt.Sprintf("%.80q is no tool: write a name, a group such as group:fs, or a pattern with *", e)
		}
	}
	return ""
}

// Layers are the layers of an agent, in the order in which they decide: the profile, the home and
// the agent. The also_allow of the agent replaces that of the home in the profile; extra is
// allowed by the profile as well. A profile that is not known, as one of a newer version, allows
// nothing; an empty one is no layer.
func Layers(profile string, home, agent Scope, extra ...string) (layers []Layer) {
	l, known := profiles[profile]
	switch {
	case profile == "":
	case !known:
		layers = append(layers, Layer{Number: NumberProfile, Name: `profile "` + profile + `", which is not known here`, Deny: []string{"*"}})
	default:
		also := agent.AlsoAllow
		if len(also) == 0 {
			also = home.AlsoAllow
		}
		if len(l.Allow) > 0 {
			l.Allow = slices.Concat(l.Allow, extra, also)
		}
		layers = append(layers, Layer{Number: NumberProfile, Name: `profile "` + profile + `"`, Allow: l.Allow, Deny: without(l.Deny, also)})
	}
	for _, l := range []Layer{home.layer(NumberHome, "home"), agent.layer(NumberAgent, "agent")} {
		if len(l.Allow)+len(l.Deny) > 0 {
			l.Origin = "tools"
			layers = append(layers, l)
		}
	}
	return layers
}

// layer has the lists; also_allow alone allows everything.
func (s Scope) layer(number int, name string) Layer {
	l := Layer{Number: number, Name: name, Allow: s.Allow, Deny: s.Deny}
	if len(s.AlsoAllow) > 0 {
		if len(l.Allow) == 0 {
			l.Allow = []string{"*"}
		}
		l.Allow = slices.Concat(l.Allow, s.AlsoAllow)
	}
	return l
}

// without are the tools of a profile's deny that also_allow does not allow.
func without(deny, also []string) (out []string) {
	list := patterns(also)
	for _, d := range deny {
		if !slices.ContainsFunc(list, func(p pattern) bool { return p.matches(Tool{Name: d}) }) {
			out = append(out, d)
		}
	}
	return out
}

// Tool is what a policy knows of a tool.
type Tool struct {
	Name  string // canonical
	Group string // GroupMCP, GroupPlugins or GroupPrograms; empty: one of ours
}

// Decision is whether a tool is allowed, and by what.
type Decision struct {
	Allowed bool
	// Layer is the number of the layer that denied it, from 1; 0: none did.
	Layer int
	// Rule is why: the list and the entry of it that decided, or that no entry matches.
	Rule string
	// OverLimit means that the layers allow it, and that it is left out beyond [MaxOffered].
	OverLimit bool
}

// Policy decides over layers.
type Policy struct {
	layers []compiled
}

// compiled is a layer with its entries read.
type compiled struct {
	allow, deny []pattern
}

// pattern is what an entry matches.
type pattern struct {
	entry string // as it is written, for people
	name  string // canonical; a group with its prefix
	group map[string]bool
	glob  []string // the parts between stars; nil: there is none
}

// New returns the policy of layers.
func New(layers []Layer) *Policy {
	p := &Policy{layers: make([]compiled, 0, len(layers))}
	for _, l := range layers {
		p.layers = append(p.layers, compiled{patterns(l.Allow), patterns(l.Deny)})
	}
	return p
}

func patterns(entries []string) []pattern {
	if len(entries) == 0 {
		return nil
	}
	out := make([]pattern, 0, len(entries))
	for _, e := range entries {
		if strings.TrimSpace(e) == "" {
			continue
		}
		p := pattern{entry: e, name: Canonical(e)}
		if group := strings.ToLower(strings.TrimSpace(e)); strings.HasPrefix(group, "group:") {
			p.name, p.group = group, members[group]
		} else if strings.Contains(p.name, "*") {
			p.glob = strings.Split(p.name, "*")
		}
		out = append(out, p)
	}
	return out
}

// Decide decides on a tool over all layers; the first one that does not allow it is named.
func (p *Policy) Decide(t Tool) Decision {
	for n, l := range p.layers {
		if rule := l.refuses(t); rule != "" {
			return Decision{Layer: n + 1, Rule: rule}
		}
	}
	return Decision{Allowed: true}
}

// refuses returns the rule by which a layer does not allow a tool; empty: it does.
func (l compiled) refuses(t Tool) string {
	for _, e := range l.deny {
		if e.matches(t) || searches(t) && e.matches(Tool{Name: "read"}) {
			return fmt.Sprintf("deny [%q]", e.entry)
		}
	}
	for _, e := range l.allow {
		if e.matches(t) || searches(t) && e.matches(Tool{Name: "read"}) || t == (Tool{Name: "apply_patch"}) && e.matches(Tool{Name: "exec"}) {
			return ""
		}
	}
	if len(l.allow) > 0 {
		return "no entry of allow"
	}
	return ""
}

// searches reports whether a tool reads files to search in them: what may read may search.
func searches(t Tool) bool { return t.Group == "" && members["group:search"][t.Name] }

func (p pattern) matches(t Tool) bool {
	switch {
	case strings.HasPrefix(p.name, "group:"):
		return t.Group == p.name || t.Group == GroupPrograms && p.name == groupRuntime || t.Group == "" && p.group[t.Name]
	case p.glob == nil:
		return p.name == t.Name
	}
	return glob(p.glob, t.Name)
}

// Match reports whether a pattern in which * matches any characters matches a name. It knows no groups and no aliases.
func Match(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	return len(parts) == 1 && pattern == name || len(parts) > 1 && glob(parts, name)
}

// glob reports whether a name has the parts in their order, the first at its beginning and the
// last at its end. Each is found from the left, which is enough where * is all that a
// pattern has.
func glob(parts []string, name string) bool {
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, p := range parts[1:last] {
		_, after, found := strings.Cut(name, p)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, parts[last])
}
