// Package layer combines the layers of an agent's settings and records the origin of each
// value. It works on bytes; later layers win:
//
//	default  <  theclaw.yaml `defaults:`  <  config.yaml  <  overrides (env, flag)
//
// [Load] reads strictly: an unknown key, a key given twice, a value of the wrong
// type or out of range is an [*Error] that names file, line and column and shows
// the place; values of keys that look like secrets are masked in it. [Set] changes one
// key and keeps comments, order and blank lines.
//
// It does not open files, does not resolve paths and does not fetch secrets.
package layer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/channel"
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
	Home      File   // theclaw.yaml; no bytes when there is none
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
	// InboxPaths are the directories outside the home below which an inbox.path may
	// lie, as theclaw.yaml lists them.
	InboxPaths []string

	storage Storage
	places  map[string]place
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
	out.home(in.Home, &problems)
	l := layer{file: in.Agent.Name, data: in.Agent.Data, cfg: &out.Config, places: out.places, problems: &problems}
	if root, ok := l.parse(); ok && root == nil {
		problems = append(problems, Problem{File: in.Agent.Name, Text: "the file is empty; it needs at least the line agent_id: " + in.AgentID})
	} else if ok {
		l.settings(root, "")
	}
	for _, o := range in.Overrides {
		if text := override(&out.Config, o); text != "" {
			problems = append(problems, Problem{Key: o.Key, Text: text, Origin: o.Origin})
			continue
		}
		out.places[o.Key] = place{origin: o.Origin}
	}
	if len(problems) == 0 {
		problems = out.checkAcross(in)
	}
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	out.list()
	return out, nil
}

// CheckHome reads theclaw.yaml alone.
func CheckHome(f File) error {
	var problems []Problem
	out := &Loaded{Config: config.Default(), places: map[string]place{}}
	out.home(f, &problems)
	if len(problems) > 0 {
		return &Error{Problems: problems}
	}
	return nil
}

func (l *Loaded) home(f File, problems *[]Problem) {
	y := layer{file: f.Name, data: f.Data, home: true, cfg: &l.Config, places: l.places, problems: problems}
	root, ok := y.parse()
	if !ok || root == nil {
		return
	}
	pairs, _ := yamldoc.Pairs(root)
	for _, kv := range pairs {
		switch key(kv) {
		case "defaults":
			if kv.Value.Type() != ast.NullType {
				y.settings(kv.Value, "")
			}
		case "inbox_paths":
			paths, ok := yamldoc.Items(kv.Value)
			if !ok {
				y.fail(orKey(kv), "inbox_paths", "inbox_paths must be a list of directories")
			}
			for _, n := range paths {
				var s string
				if problem := text(n, &s); problem != "" || config.IsLine(s) != "" {
					y.fail(n, "inbox_paths", "inbox_paths must be a list of directories")
				}
				l.InboxPaths = append(l.InboxPaths, s)
			}
		case "storage":
			l.storage = y.storage(kv)
		default:
			y.fail(kv, key(kv), unknownHome(key(kv)))
		}
	}
}

// unknownHome is what is wrong with a key at the top of theclaw.yaml, where a key of an agent
// is below defaults.
func unknownHome(key string) string {
	keys := config.HomeKeys()
	text := fmt.Sprintf("unknown key %q", config.Clip(key))
	if f := config.Lookup(key); f != nil && !f.Own || config.IsGroup(key) || key == "outbound" || key == "channels" {
		return text + "; settings of all agents are below defaults"
	}
	return text + cmp.Or(suggest(key, keys), "; there are "+strings.Join(keys[:len(keys)-1], ", ")+" and "+keys[len(keys)-1])
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
func (l *Loaded) checkAcross(in Layers) (problems []Problem) {
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
	for i, o := range c.Outbound {
		if _, ok := c.Channels[o.Via]; !ok && !channel.IsBuiltin(o.Via) {
			add(fmt.Sprintf("outbound[%d]", i), fmt.Sprintf("via: there is no channel %q; add it below channels or use xgw", config.Clip(o.Via)))
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
	if l.Config.Outbound == nil {
		add("outbound", config.FlowOutbound([]config.Outbound{{ThreadPattern: "**", Via: "xgw"}}))
	} else {
		add("outbound", config.FlowOutbound(l.Config.Outbound))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Config.Channels)) {
		add("channels."+name, config.FlowChannel(l.Config.Channels[name]))
	}
}
