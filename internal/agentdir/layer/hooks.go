package layer

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/reference"
)

// hooks reads the list of hooks of a file. before are those that it is added to.
func (l *layer) hooks(kv *ast.MappingValueNode, before []hook.Hook, ofHome bool) []hook.Hook {
	items, ok := yamldoc.Items(kv.Value)
	switch {
	case !ok && kv.Value.Type() != ast.NullType:
		l.fail(orKey(kv), "hooks", "hooks must be a list, each with name, events and command")
		return before
	case len(before)+len(items) > hook.Max:
		l.fail(orKey(kv), "hooks", fmt.Sprintf("there are %d hooks, those of the home included, and %d are the most", len(before)+len(items), hook.Max))
		return before
	}
	out := slices.Clip(before)
	for i, item := range items {
		full := fmt.Sprintf("hooks[%d]", i)
		h, at, ok := l.hook(item, full, ofHome)
		if !ok {
			continue
		}
		if slices.ContainsFunc(out, func(o hook.Hook) bool { return o.Name == h.Name }) {
			l.fail(orElse(at["name"], item), full, fmt.Sprintf("%s: there are two hooks with the name %s, those of the home included; choose another name", full, h.Name))
			continue
		}
		out = append(out, h)
	}
	return out
}

// hook reads one entry.
func (l *layer) hook(item ast.Node, full string, ofHome bool) (h hook.Hook, at map[string]ast.Node, ok bool) {
	h = hook.Hook{Timeout: hook.DefaultTimeout, OfHome: ofHome}
	timeout, env := config.Duration(hook.DefaultTimeout), config.Variables{}
	at = map[string]ast.Node{}
	before := len(*l.problems)
	notYet := func(kv *ast.MappingValueNode) {
		l.fail(kv, full, fmt.Sprintf("%s: %s: a hook is a program for now; use command", full, key(kv)))
	}
	l.object(item, full, map[string]any{
		"name": &h.Name, "events": &h.Events, "command": &h.Command, "timeout": &timeout, "on_failure": &h.OnFailure,
		"socket": notYet, "builtin": notYet,
		"priority": func(kv *ast.MappingValueNode) {
			if problem := number(kv.Value, &h.Priority); problem != "" {
				l.fail(orKey(kv), full, full+": priority: "+problem)
			}
		},
		"match": func(kv *ast.MappingValueNode) {
			l.object(kv.Value, full+".match", map[string]any{"agents": &h.Match.Agents, "sessions": &h.Match.Sessions, "channels": &h.Match.Channels}, map[string]ast.Node{})
		},
		"env": func(kv *ast.MappingValueNode) {
			if problem := l.variables(full+".env", kv.Value, &env); problem != "" {
				l.fail(orKey(kv), full, full+": env: "+problem)
			}
		},
	}, at)
	if len(*l.problems) > before {
		return h, at, false
	}
	h.Env = env
	attribute, problem := "timeout", config.ParseDuration(timeout, &h.Timeout)
	if problem == "" {
		attribute, problem = h.Problem()
	}
	if problem == "" {
		attribute, problem = "command", hookCommandProblem(h.Command)
	}
	if problem == "" {
		attribute, problem = "env", hookEnvProblem(h.Env)
	}
	if problem != "" {
		l.fail(orElse(at[attribute], item), full, full+": "+attribute+": "+problem)
		return h, at, false
	}
	return h, at, true
}

func hookCommandProblem(words []string) string {
	if problem := commandProblem(words); problem != "" {
		return problem
	}
	if program := words[0]; !filepath.IsLocal(program) && (!filepath.IsAbs(program) || filepath.Clean(program) != program) {
		return fmt.Sprintf("%q must be a file in the directory hooks, or an absolute path", config.Clip(program))
	}
	return ""
}

func hookEnvProblem(env map[string]string) string {
	if len(env) > maxEnv {
		return fmt.Sprintf("%d variables, and %d are the most", len(env), maxEnv)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case !secretName().MatchString(name):
			return fmt.Sprintf("%q is not the name of a variable", config.Clip(name))
		case !reference.Is(env[name]) || valueProblem(env[name]) != "":
			return "the value of " + name + " must be env:NAME or file:PATH, so that it is not in this file"
		}
	}
	return ""
}
