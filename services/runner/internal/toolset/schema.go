package toolset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/boundary"
)

// schema is the part of JSON Schema that the tools of a runner use. Other keywords describe
// arguments to a model and are not checked.
type schema struct {
	Type       types              `json:"type"`
	Enum       []any              `json:"enum"`
	Required   []string           `json:"required"`
	Properties map[string]*schema `json:"properties"`
	// Additional is false where other arguments are refused, or the schema of each.
	Additional json.RawMessage `json:"additionalProperties"`
	Items      *schema         `json:"items"`
}

// types are the names of one type or of several.
type types []string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *types) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*t = make(types, 1)
		return json.Unmarshal(b, &(*t)[0])
	}
	return json.Unmarshal(b, (*[]string)(t))
}

const (
	// maxProblems is how many problems of one call are listed.
	maxProblems = 3
	// maxDepth bounds the nesting that is checked.
	maxDepth = 32
)

// fits returns why the arguments of a call do not fit the schema of its tool, for the
// model; empty: they do.
func fits(spec Spec, arguments json.RawMessage) string {
	var s schema
	if json.Unmarshal(spec.Schema, &s) != nil {
		return "" // New has refused what is no JSON; the tool checks the rest
	}
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.UseNumber()
	var value any
	var rest json.RawMessage
	if err := decoder.Decode(&value); err != nil || decoder.Decode(&rest) == nil {
		return "the arguments are not a JSON object: nothing was run"
	}
	object, ok := value.(map[string]any)
	if !ok {
		return "the arguments are not a JSON object: nothing was run"
	}
	c := checker{}
	c.object(s, "", object, 0)
	if len(c.problems) == 0 {
		return ""
	}
	return invalid(spec, "nothing was run, the arguments do not fit: "+strings.Join(c.problems, "; "))
}

// invalid is what the model reads about arguments: it corrects the call from this text alone.
func invalid(spec Spec, why string) string {
	return fmt.Sprintf("invalid arguments for %s: %s. The schema of the arguments is %s", spec.Name, why, spec.Schema)
}

// checker collects the problems of one call.
type checker struct{ problems []string }

func (c *checker) add(at, format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, boundary.Name(at)+" "+fmt.Sprintf(format, args...))
	}
}

func (c *checker) value(s schema, at string, value any, depth int) {
	kind := kindOf(value)
	if depth > maxDepth {
		c.add(at, "is nested too deeply")
		return
	}
	if len(s.Type) > 0 && !slices.Contains(s.Type, kind) && (kind != "integer" || !slices.Contains(s.Type, "number")) {
		c.add(at, "must be of type %s and is of type %s", strings.Join(s.Type, " or "), kind)
		return
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(allowed any) bool { return equal(allowed, value) }) {
		c.add(at, "must be one of %s", list(s.Enum))
	}
	switch value := value.(type) {
	case map[string]any:
		c.object(s, at+".", value, depth)
	case []any:
		for n, item := range value {
			if s.Items != nil && len(c.problems) < maxProblems {
				c.value(*s.Items, fmt.Sprintf("%s[%d]", at, n), item, depth+1)
			}
		}
	}
}

// object checks the members of an object; at is what stands before their names.
func (c *checker) object(s schema, at string, object map[string]any, depth int) {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			c.add(at+name, "is missing")
		}
	}
	var other *schema
	refused := string(bytes.TrimSpace(s.Additional)) == "false"
	if len(s.Additional) > 0 && !refused && json.Unmarshal(s.Additional, &other) != nil {
		other = nil // true
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch property := s.Properties[name]; {
		case property != nil:
			c.value(*property, at+name, object[name], depth+1)
		case refused:
			c.add(at+name, "is not an argument of this tool")
		case other != nil:
			c.value(*other, at+name, object[name], depth+1)
		}
	}
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
	case json.Number:
		switch f, err := value.Float64(); {
		case err != nil:
			return "number out of range"
		case f == math.Trunc(f):
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// equal compares an allowed value with one of a call, in which numbers are as written.
func equal(allowed, value any) bool {
	if n, ok := value.(json.Number); ok {
		f, err := n.Float64()
		return err == nil && allowed == f
	}
	return reflect.DeepEqual(allowed, value)
}

func list(values []any) string {
	b, err := json.Marshal(values)
	if err != nil { // decoded values always encode
		return "the listed values"
	}
	return string(b)
}
