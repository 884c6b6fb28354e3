package thinking_test

import (
	"testing"

	"github.com/theclaw/agents/internal/thinking"
)

// The words of the levels are numbers of tokens that rise with the level; what is none of the forms is refused.
func TestParse(t *testing.T) {
	before := 0
	for _, level := range []string{"minimal", "low", "medium", "high", "xhigh"} {
		o, ok := thinking.Parse(level)
		if !ok || o.Level != level || o.Tokens < thinking.Least || o.Tokens <= before {
			t.Errorf("%s: %+v, %v, behind one of %d", level, o, ok, before)
		}
		before = o.Tokens
	}
	if thinking.Form != "off, minimal, low, medium, high, xhigh, adaptive or a number of tokens from 1024" {
		t.Error(thinking.Form)
	}
	for text, want := range map[string]thinking.Option{
		"": {}, "off": {}, "adaptive": {Adaptive: true}, "1024": {Tokens: 1024}, "1000000": {Tokens: 1000000}, "high": {Tokens: 20480, Level: "high"},
	} {
		if got, ok := thinking.Parse(text); !ok || got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"much", "High", "1023", "1000001", "-1", "0", "1e4", "99999999999999999999", " high", "on"} {
		if got, ok := thinking.Parse(text); ok || got != (thinking.Option{}) {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
}
