package toolpolicy

import (
	"maps"
	"slices"
	"strings"
)

// Provider holds the tool settings for the models of a provider, or for one model.
type Provider struct {
	// Profile limits the tools further than that of the agent; empty: it does not.
	Profile                string
	Allow, AlsoAllow, Deny []string
}

// Scope are its lists.
func (p Provider) Scope() Scope { return Scope{p.Allow, p.AlsoAllow, p.Deny} }

// Providers are the settings by PROVIDER or PROVIDER/MODEL. Case does not count.
type Providers map[string]Provider

// of returns the entry for a model: that of provider/model, else that of its provider.
func (p Providers) of(name string) (key string, entry Provider, ok bool) {
	provider, _, _ := strings.Cut(name, "/")
	for _, want := range []string{name, provider} {
		for _, key := range slices.Sorted(maps.Keys(p)) {
			if strings.EqualFold(key, want) {
				return key, p[key], true
			}
		}
	}
	return "", Provider{}, false
}

// ProviderLayers are the layers by provider of a home and of an agent, for each entry of the two:
// the profile, where that of the agent replaces that of the home, the lists of the home and those of the
// agent. [ForModel] chooses among them.
func ProviderLayers(home, agent Providers) (layers []Layer) {
	names := map[string]bool{}
	for _, p := range []Providers{home, agent} {
		for key := range p {
			names[strings.ToLower(key)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		homeKey, h, ofHome := home.of(name)
		agentKey, a, ofAgent := agent.of(name)
		profile := a.Profile
		if profile == "" {
			profile = h.Profile
		}
		// The first of them is the profile; an entry without one has no layer for it.
		for _, l := range Layers(profile, h.Scope(), a.Scope()) {
			if l.Number == NumberProfile {
				l.Number, l.Name, l.Provider = NumberProviderProfile, l.Name+" by provider", name
				layers = append(layers, l)
			}
		}
		// An entry without lists has a layer as well: it keeps the one of its provider from being chosen.
		for _, s := range []struct {
			is    bool
			layer Layer
			key   string
		}{{ofHome, h.Scope().layer(NumberHomeProvider, "home by provider"), homeKey}, {ofAgent, a.Scope().layer(NumberAgentProvider, "agent by provider"), agentKey}} {
			if s.is {
				s.layer.Origin, s.layer.Provider = "tools.by_provider."+s.key, name
				layers = append(layers, s.layer)
			}
		}
	}
	return layers
}

// ForModel returns the layers that hold for a model: those for all, and those of the entry of
// provider/model, else of its provider.
func ForModel(layers []Layer, provider, model string) []Layer {
	best, exact := strings.ToLower(provider), strings.ToLower(provider+"/"+model)
	if slices.ContainsFunc(layers, func(l Layer) bool { return l.Provider == exact }) {
		best = exact
	}
	return slices.DeleteFunc(slices.Clone(layers), func(l Layer) bool { return l.Provider != "" && l.Provider != best })
}
