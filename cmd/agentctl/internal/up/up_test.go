package up

import (
	"strings"
	"testing"
)

// The person learns who answers, and how to change it.
func TestModelLine(t *testing.T) {
	if got := modelLine("openai", "environment: OPENAI_API_KEY is set"); got != "model: openai (environment: OPENAI_API_KEY is set)" {
		t.Error(got)
	}
	for _, want := range []string{"no language model", "OPENAI_API_KEY", "providers.yaml"} {
		if got := modelLine("offline", "built in"); !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}
