// Package layer combines the layers of an agent's settings and records the origin of each
// value. It works on bytes; later layers win:
//
//	default < flavor < agents.defaults and the top of theclaw.yaml < agents.list[id]
//	        < config.yaml < overrides (env, flag)
//
// Mappings are merged key by key, lists replace one another, but for sandbox.docker.binds, which are added. With
// sandbox.scope shared the containers of sandbox.docker are those of the home, not of an agent. theclaw.yaml may be a
// theclaw.json5 instead. [ParseHome] reads what a home has besides the settings of agents.
//
// [Load] reads strictly: an unknown key, a key given twice, a value of the wrong
// type or out of range is an [*Error] that names file, line and column and shows
// the place; values of keys that look like secrets are masked in it. [Set] changes one
// key and keeps comments, order and blank lines.
//
// It does not open files, does not resolve paths and does not fetch secrets.
package layer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// File is a settings file: the name shown in messages and origins, and its bytes.
type File struct {
	Name string
	Data []byte
}

// Override is a value from above the files. Origin names its source, in the words a
// reader of `config effective` sees: "env THECLAW_MODEL", "flag --model".
type Override struct{ Key, Value, Origin string }

// Layers is what [Load] lays over one another.
type Layers struct {
	AgentID   string // name of the agent's directory; agent_id must equal it
	Home      File   // theclaw.yaml or theclaw.json5; no bytes when there is none
	Parsed    *Home  // the same, when it was read before
	Agent     File   // config.yaml; required
	Overrides []Override
}

// Value is one setting in force and its origin: "default", "theclaw.yaml:3",
// "config.yaml:7", or what an [Override] says.
type Value struct{ Key, Value, Origin string }

// Loaded is the outcome of [Load].
type Loaded struct {
	Config config.Config
	// Values are all settings in the order of [Keys], channels one by one.
	Values []Value
	// Entry is the entry of the agent in agents.list; the zero value when it has none.
	Entry AgentEntry
	// Workspace is the working directory that the settings name; empty: none.
	Workspace Value
	// IsMain reports whether the agent is the default one by the settings alone.
	IsMain bool
	// InboxPaths are the directories outside the home below which an inbox.path may
	// lie, as theclaw.yaml lists them.
	InboxPaths []string
	// Secrets are those of the home that the agent may use.
	Secrets []Secret
	// Servers are the MCP servers of the home, by name.
	Servers []Server
	// Programs are those of the home that are tools, by name.
	Programs []Program
	// Hooks are those of the home and after them those of config.yaml, in their order.
	Hooks []hook.Hook
	// Accounts are those of the home.
	Accounts []Account
	// Owners are those of the home, each as type:peer.
	Owners []string

	more   more
	places map[string]place
}

// Get returns one setting; ok is false when there is no such key.
func (l *Loaded) Get(key string) (Value, bool) {
	i := slices.IndexFunc(l.Values, func(v Value) bool { return v.Key == key })
	if i < 0 {
		return Value{}, false
	}
	return l.Values[i], true
}

// Problem returns a Problem that points at where a key was given; for what only a
// reader of the file system can judge.
func (l *Loaded) Problem(key, text string) *Error {
	return &Error{Problems: []Problem{at(l.places[key], key, text)}}
}

// Fallbacks are the models of model.fallbacks, each as PROVIDER/MODEL.
func (l *Loaded) Fallbacks() []string { return l.more.fallbacks }

func at(p place, key, text string) Problem {
	return Problem{
		File: p.file, Line: p.line, Column: p.column, Key: key, Text: text,
		Origin: p.origin, Source: source(p.data, p.line, p.column),
	}
}

// Load reads the layers. Every error is an [*Error] with all problems found.
func Load(in Layers) (*Loaded, error) {
	var problems []Problem
	out := &Loaded{Config: config.Default(), places: map[string]place{}}
	home := in.Parsed
	if home == nil {
		home = parseHome(in.Home, &problems)
	}
	if len(problems) == 0 {
		home.apply(in.AgentID, &out.Config, &out.more, out.places, &problems)
	}
	out.InboxPaths = home.InboxPaths
	out.Secrets = slices.DeleteFunc(slices.Clone(home.Settings.Secrets), func(s Secret) bool { return !s.For(in.AgentID) })
	out.Servers, out.Programs = home.Settings.Servers, home.Settings.Programs
	out.more.hooks = home.Settings.Hooks
	out.Accounts = home.Settings.Accounts
	out.Owners = home.Settings.Owners
	out.entry(home, in.AgentID)
	l := layer{file: in.Agent.Name, data: in.Agent.Data, cfg: &out.Config, more: &out.more, places: out.places, problems: &problems, own: true}
	if root, ok := l.parse(); ok && root == nil {
		problems = append(problems, Problem{File: in.Agent.Name, Text: "the file is empty; it needs at least the line agent_id: " + in.AgentID})
	} else if ok {
		l.settings(root, "")
		l.finish()
	}
	for _, o := range in.Overrides {
		if text := override(&out.Config, o); text != "" {
			problems = append(problems, Problem{Key: o.Key, Text: text, Origin: o.Origin})
			continue
		}
		out.places[o.Key] = place{origin: o.Origin}
		setApprovals(&out.Config, out.places, o.Key)
		if o.Key == "routing.default" { // the later layer decides
			out.Config.Session.DMScope = ""
			out.places["session.dm_scope"] = place{origin: o.Origin}
		}
	}
	out.Hooks = out.more.hooks
	out.flavor()
	if out.Config.Sandbox.Scope == config.ScopeShared && len(problems) == 0 {
		out.more.shared.restore(&out.Config, out.places)
	}
	if len(problems) == 0 {
		problems = out.checkAcross(in, home)
	}
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	out.list()
	return out, nil
}

// entry takes over what the file of the home says of the agent alone.
func (l *Loaded) entry(h *Home, id string) {
	l.Entry, l.IsMain = h.entry(id), h.Settings.Main() == id
	switch {
	case l.Entry.Workspace != "":
		l.Workspace = Value{"workspace", l.Entry.Workspace, h.at[id+".workspace"].String()}
	case h.Settings.Workspace != "" && l.IsMain:
		l.Workspace = Value{"workspace", h.Settings.Workspace, h.at["workspace"].String()}
	}
	for key, p := range map[string]string{"name": "name", "identity.name": "identity", "identity.theme": "identity", "identity.emoji": "identity"} {
		if at, ok := h.at[id+"."+p]; ok {
			l.places[key] = at
		}
	}
}

// flavor sets the defaults of the flavor, which only the last layers decide: the keys that
// no layer has set.
func (l *Loaded) flavor() {
	for _, d := range config.FlavorDefaults(l.Config.Flavor) {
		if _, set := l.places[d.Key]; set {
			continue
		}
		_ = config.Lookup(d.Key).Parse(&l.Config, d.Value)
		l.places[d.Key] = place{origin: "flavor " + l.Config.Flavor}
	}
}

// override stores one value given as text.
func override(c *config.Config, o Override) string {
	f := config.Lookup(o.Key)
	if f == nil {
		return fmt.Sprintf("%q is not a setting that can be given here%s", config.Clip(o.Key), suggest(o.Key, config.Keys()))
	}
	if f.Key == "agent_id" {
		return "the id of an agent cannot be overridden"
	}
	if problem := f.Parse(c, o.Value); problem != "" {
		return problem
	}
	return ""
}

// checkAcross checks what spans keys and layers.
func (l *Loaded) checkAcross(in Layers, home *Home) (problems []Problem) {
	c := &l.Config
	add := func(key, text string) {
		p, ok := l.places[key]
		if !ok {
			p = place{file: in.Agent.Name, data: in.Agent.Data}
		}
		problems = append(problems, at(p, key, text))
	}
	switch c.AgentID {
	case in.AgentID:
	case "":
		add("agent_id", "agent_id is missing; it must be "+in.AgentID)
	default:
		add("agent_id", fmt.Sprintf("agent_id is %q but the directory is %q", c.AgentID, in.AgentID))
	}
	if c.InputBudget() < 256 {
		tight := "max_output_tokens"
		if _, ok := l.places[tight]; !ok {
			tight = "context_window"
		}
		add(tight, fmt.Sprintf("context_window %d leaves no room for a prompt beside max_output_tokens %d and %d spare", c.ContextWindow, c.MaxOutputTokens, config.SafetyTokens))
	}
	for _, of := range []struct {
		prefix, whose string
		toolpolicy.Scope
	}{{config.HomeKey, "the home", c.HomeTools.Scope}, {"", "the agent", c.Tools.Scope}} {
		if len(of.Allow) > 0 && len(of.AlsoAllow) > 0 {
			add(of.prefix+"tools.also_allow", "tools.allow and tools.also_allow cannot both be set for "+of.whose+"; keep one of them")
		}
	}
	for i, o := range c.Outbound {
		if _, ok := c.Channels[o.Via]; !ok && !channel.IsBuiltin(o.Via) {
			add(fmt.Sprintf("outbound[%d]", i), fmt.Sprintf("via: there is no channel %q; add it below channels or use xgw", config.Clip(o.Via)))
		}
	}
	for _, a := range home.Settings.Accounts {
		if _, ok := c.Channels[a.Name]; ok {
			add("channels."+a.Name, fmt.Sprintf("channels.%s has the name of an account of the home; choose another name", a.Name))
		}
	}
	return problems
}

// list fills Values.
func (l *Loaded) list() {
	add := func(key, value string) {
		origin := "default"
		if p, ok := l.places[key]; ok {
			origin = p.String()
		}
		l.Values = append(l.Values, Value{key, value, origin})
	}
	for _, f := range config.Fields() {
		add(f.Key, f.Show(&l.Config))
	}
	l.Config.ForHome(func() {
		for _, key := range config.ToolKeys() {
			if f := config.Lookup(key); f.Show(&l.Config) != "[]" {
				add(config.HomeKey+key, f.Show(&l.Config))
			}
		}
	})
	for _, of := range []struct {
		prefix    string
		providers toolpolicy.Providers
	}{{"", l.Config.Tools.ByProvider}, {config.HomeKey, l.Config.HomeTools.ByProvider}} {
		for _, name := range slices.Sorted(maps.Keys(of.providers)) {
			add(of.prefix+config.ByProvider+name, config.FlowProvider(of.providers[name]))
		}
	}
	if l.Config.Outbound == nil {
		add("outbound", config.FlowOutbound([]config.Outbound{{ThreadPattern: "**", Via: "xgw"}}))
	} else {
		add("outbound", config.FlowOutbound(l.Config.Outbound))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Config.Channels)) {
		add("channels."+name, config.FlowChannel(l.Config.Channels[name]))
	}
	for _, v := range []struct{ key, value string }{
		{"name", l.Entry.Name}, {"identity.name", l.Entry.Identity.Name}, {"identity.theme", l.Entry.Identity.Theme}, {"identity.emoji", l.Entry.Identity.Emoji},
	} {
		if v.value != "" {
			add(v.key, v.value)
		}
	}
	l.more.list(add)
}
