package layer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// maxProviders bounds the entries of tools.by_provider in one scope.
const maxProviders = 100

// byProvider adds entries of tools.by_provider; a name given again replaces the complete entry.
func (l *layer) byProvider(kv *ast.MappingValueNode) {
	entries, ok := yamldoc.Pairs(kv.Value)
	if !ok {
		if kv.Value.Type() != ast.NullType {
			l.fail(kv.Value, "tools.by_provider", "tools.by_provider wants PROVIDER or PROVIDER/MODEL with profile, allow, also_allow and deny below it")
		}
		return
	}
	merged := maps.Clone(l.cfg.Tools.ByProvider)
	if merged == nil {
		merged = toolpolicy.Providers{}
	}
	first := map[string]bool{}
	for _, entry := range entries {
		name := written(entry)
		full := config.ByProvider + config.Clip(name)
		var p toolpolicy.Provider
		at := map[string]ast.Node{}
		before := len(*l.problems)
		l.object(entry.Value, full, map[string]any{"profile": &p.Profile, "allow": &p.Allow, "also_allow": &p.AlsoAllow, "deny": &p.Deny}, at)
		folded := strings.ToLower(name)
		switch {
		case len(*l.problems) > before:
		case !isModel(name):
			l.fail(entry, full, fmt.Sprintf("%q is neither a provider nor PROVIDER/MODEL, for example openai/gpt-5", config.Clip(name)))
		case first[folded]:
			l.fail(entry, full, fmt.Sprintf("there are two entries %s in tools.by_provider; keep one of them", folded))
		case at["profile"] != nil && !slices.Contains(toolpolicy.Profiles(), p.Profile):
			l.fail(at["profile"], full, fmt.Sprintf("%s.profile: %q is not one of %s", full, config.Clip(p.Profile), strings.Join(toolpolicy.Profiles(), ", ")))
		case len(p.Allow) > 0 && len(p.AlsoAllow) > 0:
			l.fail(at["also_allow"], full, full+": allow and also_allow cannot both be set; keep one of them")
		default:
			l.toolLists(full, p.Scope(), at)
		}
		for _, list := range []*[]string{&p.Allow, &p.AlsoAllow, &p.Deny} {
			if len(*list) == 0 {
				*list = nil
			}
		}
		first[folded] = true
		maps.DeleteFunc(merged, func(other string, _ toolpolicy.Provider) bool { return other != name && strings.EqualFold(other, name) })
		merged[name] = p
		l.mark(config.ByProvider+name, entry)
	}
	if len(merged) > maxProviders {
		l.fail(kv, "tools.by_provider", fmt.Sprintf("there are %d entries in tools.by_provider, and %d are the most", len(merged), maxProviders))
	}
	if len(merged) > 0 {
		l.cfg.Tools.ByProvider = merged
	}
}

// isModel reports whether s is PROVIDER or PROVIDER/MODEL.
func isModel(s string) bool {
	provider, model, both := strings.Cut(s, "/")
	return config.IsName(provider) && (!both || config.IsName(model))
}

// toolLists reports what is wrong with lists of tools.
func (l *layer) toolLists(full string, s toolpolicy.Scope, at map[string]ast.Node) {
	for _, list := range []struct {
		key     string
		entries []string
	}{{"allow", s.Allow}, {"also_allow", s.AlsoAllow}, {"deny", s.Deny}} {
		if problem := toolpolicy.Check(list.entries); problem != "" {
			l.fail(at[list.key], full, full+"."+list.key+": "+problem)
		}
	}
}

// accountTools reads the lists of an account, by the kind of conversation.
func (l *layer) accountTools(kv *ast.MappingValueNode, full string, a *Account) {
	a.Tools = map[string]toolpolicy.Scope{}
	kinds := map[string]any{}
	for _, kind := range []string{sessionkey.DM, sessionkey.Group, sessionkey.ChannelGroup} {
		kinds[kind] = func(kv *ast.MappingValueNode) {
			var s toolpolicy.Scope
			at := map[string]ast.Node{}
			of := full + "." + kind
			l.object(kv.Value, of, map[string]any{"allow": &s.Allow, "deny": &s.Deny}, at)
			l.toolLists(of, s, at)
			a.Tools[kind] = s
		}
	}
	l.object(kv.Value, full, kinds, map[string]ast.Node{})
}

// AccountTools returns the lists of the accounts that have some.
func (s HomeSettings) AccountTools() config.AccountTools {
	out := config.AccountTools{}
	for _, a := range s.Accounts {
		if len(a.Tools) > 0 {
			out[a.Name] = a.Tools
		}
	}
	return out
}

// isToolKey reports whether the home and the agent have separate values of a key.
func isToolKey(key string) bool {
	return slices.Contains(config.ToolKeys(), key) || strings.HasPrefix(key, config.ByProvider)
}

// swapToolPlaces exchanges where the lists of tools of the agent stand and where those of the home
// do; see config.Config.ForHome.
func swapToolPlaces(places map[string]place) {
	moved := map[string]place{}
	for key, p := range places {
		to := config.HomeKey + key
		if rest, ofHome := strings.CutPrefix(key, config.HomeKey); ofHome {
			key, to = rest, rest
		}
		if isToolKey(key) {
			moved[to] = p
		}
	}
	maps.DeleteFunc(places, func(key string, _ place) bool { return isToolKey(strings.TrimPrefix(key, config.HomeKey)) })
	maps.Copy(places, moved)
}
