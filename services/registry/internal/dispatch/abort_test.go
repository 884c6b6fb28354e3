package dispatch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A wish is told to who has the lease for which it was made, for a while, and to nobody
// else; what other registries say that is none makes none.
func TestWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w AbortRequests
		w.Add("agent/a", 3, "r2")
		w.AddText("a r1 3")
		w.AddText("a r3 4")
		for _, none := range []string{"", "a r9", "a r9 x", "a r9 3 4"} {
			w.AddText(none)
		}
		for token, want := range map[uint64][]string{3: {"r1", "r2"}, 4: {"r3"}, 5: nil} {
			if got := w.Of("agent/a", token); !slices.Equal(got, want) {
				t.Errorf("token %d: %v, want %v", token, got, want)
			}
		}
		if got := w.Of("deliver/a", 3); got != nil {
			t.Errorf("of another lease: %v", got)
		}
		time.Sleep(abortRequestTTL + time.Second)
		if got := w.Of("agent/a", 3); got != nil {
			t.Errorf("past its time: %v", got)
		}
		w.Add("agent/b", 1, "r")
		if len(w.by) != 1 {
			t.Errorf("kept: %v", w.by)
		}
	})
}
