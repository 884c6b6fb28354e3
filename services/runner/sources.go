package runner

import "github.com/theclaw/agents/services/runner/internal/prompt"

// newSources lists what prompts are made of: the standard sources, and one a line.
func newSources() prompt.Sources {
	return prompt.Standard(
	// Sources of the system text come here, behind the standard ones.
	)
}
