package layer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/argv"
	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/toolpolicy"
)

// Program is a program of the home that models call as a tool.
type Program struct {
	Name, Description string
	Argv              []string       // a template of package argv, unless Stdin is set
	Schema            string         // of the arguments: JSON in one form
	Stdin             bool           // the program reads the arguments as JSON
	Network           config.Network // what it reaches
	Timeout           time.Duration  // after which it is killed; 1m by default
	Class             string         // of a call: read, idempotent or effect, which is the default
}

const (
	maxPrograms    = 20
	maxSchema      = 8 << 10 // bytes: that of each program is sent with each turn
	maxSchemaDepth = 8

	programTimeout        = time.Minute
	longestProgramTimeout = time.Hour
)

// The words of input.
const (
	inputArgs  = "args"
	inputStdin = "stdin"
)

// programName is the form of a name: one __ would make it that of a tool of an MCP server.
var programName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

var (
	toolClasses = []string{"read", "idempotent", "effect"}
	schemaTypes = []string{"string", "number", "integer", "boolean", "array", "object", "null"}
)

// programs reads tools.programs.
func (h *Home) programs(l *layer, kv *ast.MappingValueNode) {
	s := &h.Settings
	const section = "tools.programs"
	entries, ok := yamldoc.Pairs(kv.Value)
	switch {
	case !ok && kv.Value.Type() != ast.NullType:
		l.fail(kv.Value, section, section+" wants the name of a tool with argv and description below it")
	case len(entries) > maxPrograms:
		l.fail(kv, section, fmt.Sprintf("there are %d programs, and %d are the most", len(entries), maxPrograms))
		return
	}
	for _, entry := range entries {
		s.Programs = append(s.Programs, l.program(entry, section+"."+config.Clip(written(entry))))
	}
	slices.SortFunc(s.Programs, func(a, b Program) int { return cmp.Compare(a.Name, b.Name) })
}

// program reads an entry of tools.programs.
func (l *layer) program(entry *ast.MappingValueNode, full string) Program {
	one := Program{Name: written(entry), Timeout: programTimeout, Class: "effect"}
	input, timeout := inputArgs, config.Duration(programTimeout)
	var schema map[string]any
	at := map[string]ast.Node{}
	before := len(*l.problems)
	read := func(set func(ast.Node) string) func(*ast.MappingValueNode) {
		return func(kv *ast.MappingValueNode) {
			if problem := set(kv.Value); problem != "" {
				l.fail(orKey(kv), full, full+": "+key(kv)+": "+problem)
			}
		}
	}
	l.object(entry.Value, full, map[string]any{
		"argv": &one.Argv, "description": &one.Description, "input": &input, "timeout": &timeout, "class": &one.Class,
		"network": read(func(n ast.Node) string { return network(n, &one.Network) }),
		"schema":  read(func(n ast.Node) string { return object(n, &schema) }),
	}, at)
	one.Stdin = input == inputStdin
	if len(*l.problems) > before {
		return one
	}
	attribute, problem := one.problem(schema)
	switch {
	case problem != "":
	case input != inputArgs && input != inputStdin:
		attribute, problem = "input", fmt.Sprintf("%q is not %s or %s", config.Clip(input), inputArgs, inputStdin)
	default:
		attribute, problem = "timeout", config.ParseDuration(timeout, &one.Timeout)
		if problem == "" && (one.Timeout < leastTimeout || one.Timeout > longestProgramTimeout) {
			problem = fmt.Sprintf("%s is not between %s and %s", config.Duration(one.Timeout), config.Duration(leastTimeout), config.Duration(longestProgramTimeout))
		}
	}
	if problem == "" {
		if one.Schema, problem = one.encoded(schema); problem == "" {
			return one
		}
		attribute = "schema"
	}
	if attribute != "" {
		problem = attribute + ": " + problem
	}
	l.fail(orElse(at[attribute], entry), full, full+": "+problem)
	return one
}

// problem is what is wrong with a program and the schema of its arguments, and with which attribute; empty: nothing.
func (p Program) problem(schema map[string]any) (attribute, problem string) {
	switch {
	case len(p.Name) > 64 || !programName.MatchString(p.Name):
		return "", fmt.Sprintf("%q is not the name of a tool (words of lower-case letters and digits with one _ between them, at most 64)", config.Clip(p.Name))
	case toolpolicy.Builtin(p.Name):
		return "", p.Name + " is the name of a tool that is built in; choose another name"
	case config.IsLine(p.Description) != "" || strings.TrimSpace(p.Description) != p.Description:
		return "description", "must be one line of 1 to 1024 bytes that tells the model what the program does"
	case !slices.Contains(toolClasses, p.Class):
		return "class", fmt.Sprintf("%q is not one of %s", config.Clip(p.Class), strings.Join(toolClasses, ", "))
	}
	if problem := commandProblem(p.Argv); problem != "" {
		return "argv", problem
	}
	if program := p.Argv[0]; strings.Contains(program, "/") && (!path.IsAbs(program) || path.Clean(program) != program) {
		return "argv", fmt.Sprintf("%q must be the name of a program or an absolute path", config.Clip(program))
	}
	if _, err := egress.Parse(p.Network.Hosts); err != nil {
		return "network", err.Error()
	}
	if problem := schemaProblem("schema", schema, 0); problem != "" {
		return "schema", problem
	}
	if p.Stdin {
		return "", ""
	}
	return "argv", p.templateProblem(schema)
}

// templateProblem compares the placeholders of argv with the arguments: an argument that no word has would be lost.
func (p Program) templateProblem(schema map[string]any) string {
	names, err := argv.Placeholders(p.Argv)
	if err != nil {
		return err.Error()
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range names {
		if properties[name] == nil {
			return fmt.Sprintf("{%s} is not among the properties of schema", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !slices.Contains(names, name) {
			return fmt.Sprintf("no word has {%s}, which is among the properties of schema; add one, or use input: %s", config.Clip(name), inputStdin)
		}
	}
	return ""
}

// schemaProblem is what is wrong with a schema of arguments, or with a part of it. It may have the keywords that the
// runner checks, and those that only describe: a rule that nothing enforces would be trusted.
func schemaProblem(at string, s map[string]any, depth int) string {
	if depth > maxSchemaDepth {
		return fmt.Sprintf("it is nested more than %d deep", maxSchemaDepth)
	}
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		value, below := s[keyword], at+"."+config.Clip(keyword)
		switch keyword {
		case "title", "description", "default", "examples":
		case "type":
			list, ok := value.([]any)
			if !ok {
				list = []any{value}
			}
			for _, kind := range list {
				if word, ok := kind.(string); !ok || !slices.Contains(schemaTypes, word) {
					return fmt.Sprintf("%s must be one of %s, or a list of them", below, strings.Join(schemaTypes, ", "))
				}
			}
		case "required":
			if !isTexts(value) {
				return below + " must be a list of texts"
			}
		case "enum":
			if list, ok := value.([]any); !ok || len(list) == 0 {
				return below + " must be a list"
			}
		case "additionalProperties":
			if _, ok := value.(bool); !ok {
				return below + " must be true or false"
			}
		case "items":
			if problem := partProblem(below, value, depth); problem != "" {
				return problem
			}
		case "properties":
			list, ok := value.(map[string]any)
			if !ok {
				return below + " must have the name of an argument with its schema below it"
			}
			for _, name := range slices.Sorted(maps.Keys(list)) {
				if !argv.IsName(name) {
					return fmt.Sprintf("%s: %q is not the name of an argument (%s)", below, config.Clip(name), argv.NameForm)
				}
				if problem := partProblem(below+"."+name, list[name], depth); problem != "" {
					return problem
				}
			}
		default:
			return below + " is not checked; use type, properties, required, additionalProperties, items, enum, and description, title, default, examples"
		}
	}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if properties[name.(string)] == nil {
			return fmt.Sprintf("%s.required: %q is not among the properties", at, config.Clip(name.(string)))
		}
	}
	if kind, given := s["type"]; depth == 0 && given && kind != "object" {
		return at + ".type must be object"
	}
	return ""
}

func partProblem(at string, part any, depth int) string {
	s, ok := part.(map[string]any)
	if !ok {
		return at + " must be a schema, such as {type: string}"
	}
	return schemaProblem(at, s, depth+1)
}

func isTexts(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool { _, text := v.(string); return !text })
}

// encoded is the schema as it is sent. Arguments that argv would not have are refused.
func (p Program) encoded(schema map[string]any) (text, problem string) {
	out := map[string]any{"properties": map[string]any{}}
	maps.Copy(out, schema)
	out["type"] = "object"
	if !p.Stdin {
		out["additionalProperties"] = false
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(out); err != nil {
		return "", "it has a value that JSON has not: " + err.Error()
	}
	if b.Len() > maxSchema {
		return "", fmt.Sprintf("it has %d bytes as JSON, and %d are the most", b.Len(), maxSchema)
	}
	return string(bytes.TrimSpace(b.Bytes())), ""
}

// object reads a mapping of free form.
func object(n ast.Node, to *map[string]any) string {
	v, problem := value(n)
	out, ok := v.(map[string]any)
	if problem == "" && !ok {
		problem = "must have `key: value` lines below it"
	}
	*to = out
	return problem
}

// value is a node as JSON has it. The document bounds its depth.
func value(n ast.Node) (any, string) {
	if pairs, ok := yamldoc.Pairs(n); ok {
		out := make(map[string]any, len(pairs))
		for _, kv := range pairs {
			v, problem := value(kv.Value)
			if problem != "" {
				return nil, problem
			}
			out[written(kv)] = v
		}
		return out, ""
	}
	if items, ok := yamldoc.Items(n); ok {
		out := make([]any, len(items))
		for i, item := range items {
			var problem string
			if out[i], problem = value(item); problem != "" {
				return nil, problem
			}
		}
		return out, ""
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return nil, ""
	case *ast.BoolNode:
		return n.Value, ""
	case *ast.IntegerNode, *ast.FloatNode:
		f, err := strconv.ParseFloat(n.GetToken().Value, 64)
		if err != nil {
			return nil, fmt.Sprintf("%q is not a number of JSON", config.Clip(n.GetToken().Value))
		}
		return f, ""
	}
	var s string
	return s, text(n, &s)
}
