// Package motto is a source of a part of every prompt. It is an example: all of a source
// but its line in services/runner/sources.go.
package motto

import "github.com/theclaw/agents/services/runner/internal/prompt"

// Source implements [prompt.Source].
type Source struct{}

// Parts implements [prompt.Source].
func (Source) Parts(*prompt.Scope) []prompt.Part {
	return []prompt.Part{{Name: "motto", Stable: true, Text: "## Motto\n\nMeasure twice.", Why: "it is an example"}}
}
