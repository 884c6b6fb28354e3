// Package option reads command lines as the recorded tools do: options with a
// value (`--name V` or `--name=V`, the value may begin with a dash), options
// without one, and words.
//
// It promises the order of the complaints: an option that must be there and is
// not comes before one that nobody knows. It prints nothing; the programs do, and
// choose the exit code, which differs from tool to tool.
package option

import (
	"fmt"
	"slices"
	"strings"
)

// Spec is what a command understands. A name is written without its dashes; a
// name that ends in ! must be there.
type Spec struct {
	Values []string
	Flags  []string
}

// Set is a command line that was read.
type Set struct {
	values map[string]string
	Words  []string
}

// Get answers a value, empty when it was not given.
func (s Set) Get(name string) string { return s.values[name] }

// Has reports whether an option was given.
func (s Set) Has(name string) bool { _, ok := s.values[name]; return ok }

// Parse reads args. The error's text is the line such tools print.
func Parse(spec Spec, args []string) (Set, error) {
	out := Set{values: map[string]string{}}
	unknown := ""
	for i := 0; i < len(args); i++ {
		name, isOption := strings.CutPrefix(args[i], "--")
		if !isOption || name == "" {
			out.Words = append(out.Words, args[i])
			continue
		}
		name, value, inline := strings.Cut(name, "=")
		switch {
		case slices.Contains(spec.Flags, name):
			out.values[name] = ""
		case !slices.Contains(spec.Values, name) && !slices.Contains(spec.Values, name+"!"):
			if unknown == "" {
				unknown = args[i]
			}
		case inline:
			out.values[name] = value
		case i+1 == len(args):
			return out, fmt.Errorf("error: option '--%s <value>' argument missing", name)
		default:
			i++
			out.values[name] = args[i]
		}
	}
	for _, v := range spec.Values {
		if name, must := strings.CutSuffix(v, "!"); must && !out.Has(name) {
			return out, fmt.Errorf("error: required option '--%s <value>' not specified", name)
		}
	}
	if unknown != "" {
		return out, fmt.Errorf("error: unknown option '%s'", unknown)
	}
	return out, nil
}
