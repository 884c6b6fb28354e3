package pause_test

import (
	"testing"
	"time"

	"github.com/theclaw/agents/internal/pause"
)

// The ceiling doubles up to its bound, the jitter is full, and no wait is zero.
func TestBackoff(t *testing.T) {
	b := pause.Backoff{First: 50 * time.Millisecond, Last: 2 * time.Second}
	for failures, ceiling := range map[int]time.Duration{
		0: 50 * time.Millisecond, 1: 100 * time.Millisecond, 5: 1600 * time.Millisecond, 6: 2 * time.Second, 1 << 20: 2 * time.Second,
	} {
		low, high := ceiling, time.Duration(0)
		for range 1000 {
			w := b.Wait(failures)
			low, high = min(low, w), max(high, w)
		}
		if low < time.Millisecond || low > ceiling/4 || high > ceiling || high < ceiling*3/4 {
			t.Errorf("after %d failures: %v to %v, the ceiling is %v", failures, low, high, ceiling)
		}
	}
	if w := (pause.Backoff{First: 1, Last: 1}).Wait(0); w != 1 {
		t.Errorf("a ceiling of 1 ns: %v", w)
	}
}
