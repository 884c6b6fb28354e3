package layer

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/hook"
)

// more are settings of an agent that are checked, merged and shown but not part of a Config.
type more struct {
	fallbacks []string          // of model; nil: not set
	search    map[string]string // the leaves of memory_search, by their dotted path, as one line of YAML
	shared    shared
	hooks     []hook.Hook
}

// shared are the settings of containers that several agents use: those of the home, whatever one agent sets.
type shared struct {
	docker  config.Docker
	browser config.Browser
	places  map[string]place
}

func isContainerKey(key string) bool {
	return strings.HasPrefix(key, "sandbox.docker.") || strings.HasPrefix(key, "sandbox.browser.")
}

// keep notes the settings so far.
func (s *shared) keep(c *config.Config, places map[string]place) {
	*s = shared{c.Sandbox.Docker, c.Sandbox.Browser, map[string]place{}}
	for key, p := range places {
		if isContainerKey(key) {
			s.places[key] = p
		}
	}
}

// restore puts the settings back.
func (s *shared) restore(c *config.Config, places map[string]place) {
	c.Sandbox.Docker, c.Sandbox.Browser = s.docker, s.browser
	maps.DeleteFunc(places, func(key string, _ place) bool { return isContainerKey(key) })
	maps.Copy(places, s.places)
}

// model is the key model of one layer: a text is its primary.
type model struct {
	at                ast.Node
	provider, primary string
}

const modelForm = "write PROVIDER/MODEL, for example anthropic/claude-sonnet-4-5"

// readModel reads model: a text, or primary and fallbacks. The primary means pai.provider and
// pai.model.
func (l *layer) readModel(kv *ast.MappingValueNode) {
	var primary string
	var fallbacks []string
	at := map[string]ast.Node{}
	if _, mapping := yamldoc.Pairs(kv.Value); mapping {
		before := len(*l.problems)
		l.object(kv.Value, "model", map[string]any{"primary": &primary, "fallbacks": &fallbacks}, at)
		if len(*l.problems) > before {
			return
		}
	} else if problem := text(kv.Value, &primary); problem != "" {
		l.fail(orKey(kv), "model", "model: "+problem)
		return
	} else {
		at["primary"] = orKey(kv)
	}
	if n := at["primary"]; n != nil {
		provider, name := splitModel(primary)
		if name == "" {
			l.fail(n, "model", fmt.Sprintf("model: %q is not a model; %s", config.Clip(primary), modelForm))
			return
		}
		l.model = &model{n, provider, name}
	}
	if n := at["fallbacks"]; n != nil {
		for _, f := range fallbacks {
			if provider, name := splitModel(f); provider == "" || name == "" {
				l.fail(n, "model", fmt.Sprintf("model.fallbacks: %q is not a model; %s", config.Clip(f), modelForm))
			}
		}
		if len(fallbacks) > maxFallbacks {
			l.fail(n, "model", fmt.Sprintf("model.fallbacks has %d models, and %d are the most", len(fallbacks), maxFallbacks))
		}
		l.more.fallbacks = fallbacks
		l.mark("model.fallbacks", n)
	}
}

// splitModel splits PROVIDER/MODEL; the provider is empty when the text is only a model. Both
// are empty when it is neither.
func splitModel(s string) (provider, model string) {
	provider, model, both := strings.Cut(s, "/")
	if !both {
		provider, model = "", s
	}
	if !config.IsName(model) || both && !config.IsName(provider) {
		return "", ""
	}
	return provider, model
}

// memorySearch merges the mapping key by key, at every depth; a list replaces the other.
func (l *layer) memorySearch(kv *ast.MappingValueNode) {
	if _, ok := yamldoc.Pairs(kv.Value); !ok {
		l.fail(orKey(kv), "memory_search", "memory_search must have `key: value` lines below it")
		return
	}
	l.leaves("memory_search", kv)
}

func (l *layer) leaves(full string, kv *ast.MappingValueNode) {
	if pairs, ok := l.pairs(kv.Value, full); ok && len(pairs) > 0 {
		l.forget(full)
		for _, below := range pairs {
			l.leaves(full+"."+key(below), below)
		}
		return
	}
	l.forget(full)
	for path := range l.more.search {
		if strings.HasPrefix(path, full+".") {
			l.forget(path)
		}
	}
	if l.more.search == nil {
		l.more.search = map[string]string{}
	}
	l.more.search[full] = flow(kv.Value)
	l.mark(full, kv)
}

func (l *layer) forget(path string) {
	delete(l.more.search, path)
	delete(l.places, path)
}

// flow writes a value on one line of YAML.
func flow(n ast.Node) string {
	if pairs, ok := yamldoc.Pairs(n); ok {
		parts := make([]string, len(pairs))
		for i, kv := range pairs {
			parts[i] = config.Quote(key(kv)) + ": " + flow(kv.Value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if items, ok := yamldoc.Items(n); ok {
		parts := make([]string, len(items))
		for i, item := range items {
			parts[i] = flow(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	var s string
	if text(n, &s) == "" {
		return config.Quote(s)
	}
	return n.GetToken().Value
}

// finish applies what depends on several keys of one layer.
func (l *layer) finish() {
	if m := l.model; m != nil {
		for key, value := range map[string]string{"pai.provider": m.provider, "pai.model": m.primary} {
			f := config.Lookup(key)
			ref := f.Ref(l.cfg).(*string)
			switch {
			case value == "":
			case l.set[key] == nil:
				*ref = value
				l.mark(key, m.at)
			case *ref != value:
				l.fail(m.at, "model", fmt.Sprintf("model and %s name different models; keep one of them", key))
			}
		}
	}
	dm, routing := l.set["session.dm_scope"], l.set["routing.default"]
	switch {
	case dm != nil && routing != nil && config.RoutingScope(l.cfg.Routing.Default) != l.cfg.DMScope():
		l.fail(dm, "session.dm_scope", fmt.Sprintf("session.dm_scope %s and routing.default %s of one file mean different conversations; keep one of them", l.cfg.Session.DMScope, l.cfg.Routing.Default))
	case dm == nil && routing != nil:
		// The later layer decides.
		l.cfg.Session.DMScope = ""
		l.places["session.dm_scope"] = l.places["routing.default"]
	}
	for _, key := range execKeys {
		if n := l.set[key]; n != nil && l.set["approvals"] != nil {
			l.fail(n, key, "approvals is the older form of "+key+"; keep one of them")
		}
	}
	for _, key := range append(execKeys, "approvals") {
		if l.set[key] != nil {
			setApprovals(l.cfg, l.places, key)
		}
	}
}

// execKeys are what approvals sets.
var execKeys = []string{"tools.exec.security", "tools.exec.ask"}

// setApprovals makes the settings agree after key was set: approvals means the two others, and
// one of them ends what approvals of an earlier layer means.
func setApprovals(c *config.Config, places map[string]place, key string) {
	switch {
	case key == "approvals":
		c.Tools.Exec.Security, c.Tools.Exec.Ask = config.OlderApprovals(c.Approvals)
		for _, k := range execKeys {
			places[k] = places[key]
		}
	case slices.Contains(execKeys, key) && c.Approvals != "":
		c.Approvals = ""
		places["approvals"] = places[key]
	}
}

// groupChat reads what an agent does in groups.
func (l *layer) groupChat(kv *ast.MappingValueNode, full string, g *GroupChat) {
	at := map[string]ast.Node{}
	l.object(kv.Value, full, map[string]any{"mention_patterns": &g.MentionPatterns, "history_limit": func(kv *ast.MappingValueNode) {
		problem := number(kv.Value, &g.HistoryLimit)
		if problem == "" && (g.HistoryLimit < 0 || g.HistoryLimit > 500) {
			problem = fmt.Sprintf("%d is not between 0 and 500", g.HistoryLimit)
		}
		if problem != "" {
			l.fail(orKey(kv), full, "history_limit: "+problem)
		}
	}}, at)
	if len(g.MentionPatterns) > 32 {
		l.fail(orElse(at["mention_patterns"], kv), full, "mention_patterns: at most 32 are allowed")
	}
	for _, p := range g.MentionPatterns {
		if _, err := regexp.Compile(p); err != nil || len(p) > 256 {
			l.fail(orElse(at["mention_patterns"], kv), full, fmt.Sprintf("mention_patterns: %q is not a regular expression (RE2) of at most 256 bytes", config.Clip(p)))
		}
	}
}

// list adds the settings to those that are shown.
func (m *more) list(add func(key, value string)) {
	if m.fallbacks != nil {
		add("model.fallbacks", config.FlowList(m.fallbacks))
	}
	for _, path := range slices.Sorted(maps.Keys(m.search)) {
		add(path, m.search[path])
	}
}
