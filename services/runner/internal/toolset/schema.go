package toolset

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/theclaw/agents/internal/boundary"
)

const (
	// maxProblems is how many problems of one call are listed.
	maxProblems = 3
	// maxSchemas is how many compiled schemas are kept.
	maxSchemas = 512
	// maxVisits bounds the work of one check, in parts of the schema that are held against a part of the arguments: a small
	// schema can refer to itself so often that a check would not end.
	maxVisits = 100_000
)

// schemas are the compiled schemas of tools, by their text. The zero value is empty.
type schemas struct {
	mu sync.Mutex
	of map[string]func() *schema
}

// compiled is the schema of a text. It is compiled once, by the first call that needs it: only calls with the same schema
// wait for that. One that is over the bound replaces any other one.
func (s *schemas) compiled(text json.RawMessage) *schema {
	s.mu.Lock()
	c, ok := s.of[string(text)]
	if !ok {
		if s.of == nil {
			s.of = map[string]func() *schema{}
		}
		for other := range s.of {
			if len(s.of) < maxSchemas {
				break
			}
			delete(s.of, other)
		}
		c = sync.OnceValue(func() *schema { return compile(text) })
		s.of[string(text)] = c
	}
	s.mu.Unlock()
	return c()
}

// schema is a compiled schema. Its texts come from outside: from MCP servers.
type schema struct {
	// unusable is why arguments are not checked; empty: they are. patterns are those that are not checked.
	unusable string
	patterns []string

	mu     sync.Mutex // of a check
	schema *jsonschema.Schema
	visits int
	// unsure: a pattern that is not checked was met. inverted: the schema has keywords by which arguments that do not match a
	// pattern may fit, so that with such a pattern nothing is known.
	unsure, inverted bool
}

var (
	errRemote = errors.New("it refers to another document")
	errVisits = errors.New("a check takes too long")
)

// closed is a loader of no documents.
type closed struct{}

func (closed) Load(string) (any, error) { return nil, errRemote }

// notRE2 is a pattern that is not of RE2. It matches everything, and the check knows that it was asked.
type notRE2 struct {
	text string
	of   *schema
}

func (p notRE2) MatchString(string) bool { p.of.unsure = true; return true }
func (p notRE2) String() string          { return p.text }

// compile compiles a schema. One that names no version of JSON Schema is of the newest by which it can be read.
func compile(text json.RawMessage) (c *schema) {
	c = &schema{}
	defer func() {
		if p := recover(); p != nil { // a defect of the library, or of the schema
			c.unusable = "it cannot be read: " + fmt.Sprint(p)
		}
	}()
	const name = "urn:arguments"
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft7, jsonschema.Draft4} {
		var document any
		if err := json.Unmarshal(text, &document); err != nil { // a number out of range
			c.unusable = err.Error()
			return c
		}
		c.patterns = nil
		compiler := jsonschema.NewCompiler()
		compiler.DefaultDraft(draft)
		compiler.UseLoader(closed{})
		compiler.UseRegexpEngine(c.pattern)
		err := compiler.AddResource(name, document)
		if err == nil {
			c.schema, err = compiler.Compile(name)
		}
		if err == nil {
			c.unusable = ""
			c.bound(c.schema, map[*jsonschema.Schema]bool{})
			return c
		}
		if c.unusable == "" {
			c.unusable = err.Error()
		}
	}
	c.patterns = nil
	return c
}

func (c *schema) pattern(text string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		c.patterns = append(c.patterns, text)
		return notRE2{text, c}, nil
	}
	return re, nil
}

// bound has the visits of a schema, and of all that it consists of, counted. The library looks at the format of a value
// before it looks into it; formats themselves are notes for the model, in every version of JSON Schema.
func (c *schema) bound(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	cost := 1 + len(s.PatternProperties)
	if s.Enum != nil {
		cost += len(s.Enum.Values)
	}
	s.Format = &jsonschema.Format{Name: "visit", Validate: func(any) error {
		if c.visits += cost; c.visits > maxVisits {
			panic(errVisits)
		}
		return nil
	}}
	if s.Not != nil || s.OneOf != nil || s.If != nil || s.PatternProperties != nil || s.Contains != nil {
		c.inverted = true
	}
	parts := slices.Concat([]*jsonschema.Schema{
		s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems, slices.Collect(maps.Values(s.Properties)), slices.Collect(maps.Values(s.PatternProperties)),
		slices.Collect(maps.Values(s.DependentSchemas)))
	if s.DynamicRef != nil {
		parts = append(parts, s.DynamicRef.Ref)
	}
	for _, part := range append(slices.Collect(maps.Values(s.Dependencies)), s.AdditionalProperties, s.Items, s.AdditionalItems) {
		switch part := part.(type) {
		case *jsonschema.Schema:
			parts = append(parts, part)
		case []*jsonschema.Schema:
			parts = append(parts, part...)
		}
	}
	for _, part := range parts {
		c.bound(part, seen)
	}
}

// check returns why arguments do not fit; nil: they do, or it is not known, and note says why.
func (c *schema) check(arguments map[string]any) (problems []string, note string) {
	if c.unusable != "" {
		return nil, c.unusable
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.visits, c.unsure = 0, false
	defer func() {
		if p := recover(); p != nil {
			problems, note = nil, fmt.Sprint(p)
		}
	}()
	err := c.schema.Validate(arguments)
	if c.unsure {
		note = "a pattern is not of RE2: " + strings.Join(c.patterns, ", ")
	}
	failed, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok || c.unsure && c.inverted {
		return nil, note
	}
	f := findings{root: arguments}
	f.collect(failed)
	if f.loops {
		return nil, "it refers to itself"
	}
	return f.list(), note
}

// findings are the problems of one call.
type findings struct {
	root  any
	found []finding
	loops bool
}

// finding is a problem; at orders it.
type finding struct{ at, text string }

// list are the first problems, by the arguments that they are about.
func (f *findings) list() (out []string) {
	slices.SortStableFunc(f.found, func(a, b finding) int { return strings.Compare(a.at, b.at) })
	for _, p := range f.found {
		if !slices.Contains(out, p.text) && len(out) < maxProblems {
			out = append(out, p.text)
		}
	}
	return out
}

func (f *findings) collect(e *jsonschema.ValidationError) {
	name, value := f.at(e.InstanceLocation)
	add := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		f.found = append(f.found, finding{name, boundary.Name(cmp.Or(name, "the object")) + " " + text})
	}
	member := func(member, what string) {
		if name != "" {
			member = name + "." + member
		}
		f.found = append(f.found, finding{name, boundary.Name(member) + " " + what})
	}
	switch k := e.ErrorKind.(type) {
	case *kind.RefCycle:
		f.loops = true
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		for _, cause := range e.Causes {
			f.collect(cause)
		}
	case *kind.AnyOf, *kind.OneOf:
		if one, ok := k.(*kind.OneOf); ok && len(one.Subschemas) > 0 {
			add("fits more than one of the forms of which it must have one")
			return
		}
		f.forms(e, add)
	case *kind.Type:
		add("must be of type %s and is of type %s", either(k.Want), kindOf(value))
	case *kind.Enum:
		add("must be one of %s", list(k.Want))
	case *kind.Const:
		add("must be %s", list(k.Want))
	case *kind.Required:
		for _, missing := range k.Missing {
			member(missing, "is missing")
		}
	case *kind.DependentRequired:
		for _, missing := range k.Missing {
			member(missing, "is missing, which "+boundary.Name(k.Prop)+" needs")
		}
	case *kind.Dependency:
		for _, missing := range k.Missing {
			member(missing, "is missing, which "+boundary.Name(k.Prop)+" needs")
		}
	case *kind.AdditionalProperties:
		for _, other := range slices.Sorted(slices.Values(k.Properties)) {
			member(other, "is not an argument of this tool")
			f.found[len(f.found)-1].at = strings.TrimPrefix(name+"."+other, ".")
		}
	case *kind.FalseSchema:
		if strings.HasSuffix(name, "]") {
			add("is not allowed")
		} else {
			add("is not an argument of this tool")
		}
	case *kind.PropertyNames:
		member(k.Property, "is a name that is not allowed")
	case *kind.Pattern:
		add("must match the pattern %q", k.Want)
	case *kind.Minimum:
		add("must be at least %s", number(k.Want))
	case *kind.Maximum:
		add("must be at most %s", number(k.Want))
	case *kind.ExclusiveMinimum:
		add("must be more than %s", number(k.Want))
	case *kind.ExclusiveMaximum:
		add("must be less than %s", number(k.Want))
	case *kind.MultipleOf:
		add("must be a multiple of %s", number(k.Want))
	case *kind.MinLength:
		add("must have at least %d characters and has %d", k.Want, k.Got)
	case *kind.MaxLength:
		add("must have at most %d characters and has %d", k.Want, k.Got)
	case *kind.MinItems:
		add("must have at least %d elements and has %d", k.Want, k.Got)
	case *kind.MaxItems:
		add("must have at most %d elements and has %d", k.Want, k.Got)
	case *kind.MinProperties:
		add("must have at least %d members and has %d", k.Want, k.Got)
	case *kind.MaxProperties:
		add("must have at most %d members and has %d", k.Want, k.Got)
	case *kind.UniqueItems:
		add("must not have equal elements, as at %d and %d", k.Duplicates[0], k.Duplicates[1])
	default:
		add("does not fit the keyword %s of the schema", strings.Join(k.KeywordPath(), "."))
	}
}

// forms adds what keeps a value from every one of its forms: the types, where all want another one, else the
// problems of the form that it is nearest to, which is the one whose problems are deepest.
func (f *findings) forms(e *jsonschema.ValidationError, add func(format string, args ...any)) {
	var want []string
	var nearest []finding
	depth := -1
	for _, cause := range e.Causes {
		if k, ok := cause.ErrorKind.(*kind.Type); ok && len(cause.InstanceLocation) == len(e.InstanceLocation) {
			want = append(want, k.Want...)
			continue
		}
		of := findings{root: f.root}
		of.collect(cause)
		f.loops = f.loops || of.loops
		if d := deepest(cause); d > depth {
			depth, nearest = d, of.found
		}
	}
	switch _, value := f.at(e.InstanceLocation); {
	case nearest != nil:
		f.found = append(f.found, nearest...)
	case len(want) > 0:
		add("must be of type %s and is of type %s", either(want), kindOf(value))
	default:
		add("has none of its forms")
	}
}

// either is a list of types for people: null is the last one.
func either(types []string) string {
	types = slices.Compact(slices.Sorted(slices.Values(types)))
	if n := slices.Index(types, "null"); n >= 0 {
		types = append(slices.Delete(types, n, n+1), "null")
	}
	return strings.Join(types, " or ")
}

func deepest(e *jsonschema.ValidationError) int {
	n := len(e.InstanceLocation)
	for _, cause := range e.Causes {
		n = max(n, deepest(cause))
	}
	return n
}

// at is the argument at a place, by its name for the model, such as lines[1] or env.A.
func (f *findings) at(place []string) (name string, value any) {
	value = f.root
	for _, step := range place {
		switch of := value.(type) {
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(of) {
				return name, nil
			}
			name, value = name+"["+step+"]", of[n]
		case map[string]any:
			if name != "" {
				name += "."
			}
			name, value = name+step, of[step]
		}
	}
	return name, value
}

// fits returns why the arguments of a call do not fit the schema of its tool, for the model; empty: they do. note is why
// that is not known, for the log; empty: it is.
func (t *Tools) fits(spec Spec, arguments json.RawMessage) (misfit, note string) {
	object, ok := decoded(arguments)
	if !ok {
		return "the arguments are not a JSON object: nothing was run", ""
	}
	of := t.schemas.compiled(spec.Schema)
	problems, note := of.check(object)
	if spec.Server == "" {
		problems = append(problems, of.otherCase(object)...)
	}
	if len(problems) > 0 {
		misfit = invalid(spec, "nothing was run, the arguments do not fit: "+strings.Join(problems, "; "))
	}
	return misfit, note
}

// otherCase returns a problem for each argument whose name differs from one of the schema by its case only. encoding/json,
// with which our tools read their arguments, takes one for the other, and people would be shown the one that is not used.
func (c *schema) otherCase(arguments map[string]any) (problems []string) {
	if c.schema == nil {
		return nil
	}
	for name := range arguments {
		if c.schema.Properties[name] != nil {
			continue
		}
		for known := range c.schema.Properties {
			if strings.EqualFold(name, known) {
				problems = append(problems, boundary.Name(name)+" is not an argument of this tool, "+known+" is")
			}
		}
	}
	slices.Sort(problems)
	return problems[:min(len(problems), maxProblems)]
}

// decoded is a JSON object with its numbers as float64; one that is out of range is the largest one.
func decoded(text json.RawMessage) (object map[string]any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var rest json.RawMessage
	if err := decoder.Decode(&object); err != nil || object == nil || decoder.Decode(&rest) == nil {
		return nil, false
	}
	return floats(object).(map[string]any), true
}

func floats(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = floats(member)
		}
	case []any:
		for n, element := range value {
			value[n] = floats(element)
		}
	case json.Number:
		f, err := value.Float64()
		if err != nil {
			return math.Copysign(math.MaxFloat64, f)
		}
		return f
	}
	return value
}

// invalid is what the model reads about arguments: it corrects the call from this text alone.
func invalid(spec Spec, why string) string {
	return fmt.Sprintf("invalid arguments for %s: %s. The schema of the arguments is %s", spec.Name, why, spec.Schema)
}

// kindOf is the type of a decoded value, as JSON Schema names it.
func kindOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if value == math.Trunc(value) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// number is a number of a schema as people write it.
func number(r *big.Rat) string {
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// list is what a schema allows, as JSON of a bounded length.
func list(values any) string {
	b, err := json.Marshal(values)
	if err != nil { // decoded values always encode
		return "the listed values"
	}
	text, _ := boundary.Text(string(b), 1000)
	return text
}
