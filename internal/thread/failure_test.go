package thread_test

import (
	"testing"

	"github.com/theclaw/agents/internal/thread"
)

// R2: what a failure says survives the event that holds it; what others wrote is none.
func TestFailure(t *testing.T) {
	for want, f := range map[string]thread.Failure{
		`{"error":"no \"x\"","context":"message from a"}`:                                {Error: `no "x"`, Context: "message from a"},
		`{"error":"no","context":"","event":7,"class":"request refused","refused":true}`: {Error: "no", Event: 7, Class: "request refused", Refused: true},
	} {
		if got := f.Content(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got, ok := thread.ParseFailure(want); !ok || got != f {
			t.Errorf("read %+v, %v", got, ok)
		}
	}
	for _, content := range []string{"", "{}", "[]", `{"error":1}`, "offline"} {
		if f, ok := thread.ParseFailure(content); ok {
			t.Errorf("%s: %+v", content, f)
		}
	}
}
