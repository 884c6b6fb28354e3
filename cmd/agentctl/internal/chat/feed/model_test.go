package feed

import (
	"strings"
	"testing"
)

// H6: the person learns who answers, and how to change it.
func TestModel(t *testing.T) {
	set := Model{Name: "openai/gpt-4o", Origin: "environment: OPENAI_API_KEY is set"}
	if got := set.Line(); got != "model: openai/gpt-4o (environment: OPENAI_API_KEY is set)" || set.Advice() != "" {
		t.Errorf("%q, advice %q", got, set.Advice())
	}
	offline := Model{Name: "offline/offline", Offline: true, Origin: "built in"}
	for _, text := range []string{offline.Line(), offline.Advice()} {
		for _, want := range []string{"no language model", "OPENAI_API_KEY", "providers.yaml"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
	}
	if strings.Contains(offline.Line(), "\n") {
		t.Errorf("more than a line: %q", offline.Line())
	}
	if broken := (Model{Name: "work/m", Problem: "no key"}); broken.Advice() != "no key" || broken.Title() != "work/m" {
		t.Errorf("%q, advice %q", broken.Title(), broken.Advice())
	}
	if none := (Model{}); none.Title() != "" || !strings.Contains(none.Line(), "no runner answers") {
		t.Errorf("%q", none.Line())
	}
}
