// Package thinking defines the values of the option that says how much a model thinks before it answers.
//
// It promises that every program reads a value the same way: what a person may set for a conversation is what the driver
// of the model takes. It knows no model; what a model does not take is the driver's to decide.
package thinking

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Least and Most bound a number of tokens.
const (
	Least = 1024
	Most  = 1_000_000
)

// Form is what a value may be, for people; the levels rise.
var Form = "off, " + strings.Join(slices.SortedFunc(maps.Keys(levels), func(a, b string) int { return levels[a] - levels[b] }), ", ") +
	", adaptive or a number of tokens from " + strconv.Itoa(Least)

// Option is a value. The zero value does not ask for thinking.
type Option struct {
	// Adaptive lets the model choose how much; newer models take nothing else.
	Adaptive bool
	// Tokens is the most that a model may think; at least [Least].
	Tokens int
	// Level is the word for Tokens; empty: a number was written.
	Level string
}

// levels are the tokens of each level.
var levels = map[string]int{"minimal": Least, "low": 4096, "medium": 10240, "high": 20480, "xhigh": 32768}

// Parse reads a value; empty is off. ok is false for what is none.
func Parse(s string) (o Option, ok bool) {
	switch s {
	case "", "off":
		return Option{}, true
	case "adaptive":
		return Option{Adaptive: true}, true
	}
	if n, ok := levels[s]; ok {
		return Option{Tokens: n, Level: s}, true
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < Least || n > Most {
		return Option{}, false
	}
	return Option{Tokens: n}, true
}
