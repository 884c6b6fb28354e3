package agentdir

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// S0-19: every preset is whole, and its summary can stand alone.
func TestPresets(t *testing.T) {
	for _, p := range append(SystemAgents(), presetFor("bob")) {
		for _, text := range [][]byte{p.Identity, p.Usage} {
			lines := strings.Count(string(text), "\n")
			if !utf8.Valid(text) || lines < 20 || lines > 40 || strings.Contains(string(text), "{{") {
				t.Errorf("%s: %d lines: %.60q", p.ID, lines, text)
			}
		}
		title, rest, _ := strings.Cut(string(p.Usage), "\n\n")
		summary, _, _ := strings.Cut(rest, "\n\n")
		if title != "# Using "+p.ID || !strings.HasPrefix(summary, p.ID+" ") || len(summary) > 300 {
			t.Errorf("%s: title %q, summary %q", p.ID, title, summary)
		}
	}
}
