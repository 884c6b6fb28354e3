package workdir

import (
	"testing"
	"time"
)

// A stamp is believed later only if a second write would have changed it when it was
// taken.
func TestSettled(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		modified, changed time.Duration // before now
		want              bool
	}{
		{0, 0, false},
		{time.Hour, time.Millisecond, false}, // its time was set to an older one a moment ago
		{tick - 1, tick - 1, false},
		{tick, tick, true},
		{-time.Millisecond, 0, false},
		{-time.Hour, time.Hour, true}, // somebody has set it
	} {
		s := stamp{modified: now.Add(-c.modified).UnixNano(), changed: now.Add(-c.changed).UnixNano()}
		if got := s.settled(now); got != c.want {
			t.Errorf("modified %v, changed %v ago: %v, want %v", c.modified, c.changed, got, c.want)
		}
	}
}
