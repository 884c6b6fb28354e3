package prune

import (
	"testing"
	"time"
)

func TestParseAge(t *testing.T) {
	for in, want := range map[string]time.Duration{"30d": 720 * time.Hour, "25h": 25 * time.Hour, "2d": 48 * time.Hour, "1000h30m": 1000*time.Hour + 30*time.Minute} {
		if got, err := parseAge(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "0d", "1d", "-3d", "24h", "x", "99999d", "30"} {
		if got, err := parseAge(in); err == nil {
			t.Errorf("%q became %v", in, got)
		}
	}
}
