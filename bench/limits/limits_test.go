package limits_test

import (
	"testing"

	"github.com/theclaw/agents/bench/limits"
)

// Every limit is measured, not how much it is.
func TestEachLimitIsMeasured(t *testing.T) {
	dir := t.TempDir()
	for name, measure := range map[string]func() (float64, error){
		"F":      func() (float64, error) { d, err := limits.Sync(dir, 5); return d.Seconds(), err },
		"P0":     func() (float64, error) { d, err := limits.PingPong(dir, 5); return d.Seconds(), err },
		"A(4)":   func() (float64, error) { return limits.Commits(dir, 4, 20, 1) },
		"U(4)":   func() (float64, error) { return limits.Commits(dir, 4, 20, 2) },
		"engine": func() (float64, error) { b, err := limits.Engine(t.Context(), dir, 2, 3); return b.Rate, err },
		"push":   func() (float64, error) { d, err := limits.Push(t.Context(), dir, 3); return d.Seconds(), err },
	} {
		if v, err := measure(); err != nil || v <= 0 {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}
