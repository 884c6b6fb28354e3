package breaker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPermit: one permit, one record, and the states between for the metrics.
func TestPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		var states []string
		s.OnChange = func(channel string) { states = append(states, s.State(channel)) }

		p := allow(t, &s, hook)
		if p.For(other) {
			t.Error("a permit for another destination")
		}
		p.Record(nil)
		if p.For(hook) || len(states) != 0 {
			t.Errorf("a used permit is live, or a quiet send was told: %v", states)
		}
		p = allow(t, &s, hook)
		p.Record(down)
		p.Record(nil) // the second record does not count
		refuse(t, &s, hook, firstPause)
		if len(states) != 0 {
			t.Errorf("the first failure counts as an outage: %v", states)
		}
		for _, pause := range []time.Duration{firstPause, 2 * firstPause} {
			time.Sleep(pause)
			allow(t, &s, hook).Record(down)
		}
		time.Sleep(Interval)
		p = allow(t, &s, hook)
		p.Release() // the probe sent nothing: soon another one may
		refuse(t, &s, hook, probeWait)
		time.Sleep(probeWait)
		allow(t, &s, hook).Record(nil)
		want := []string{"open", "half_open", "open", "half_open", "closed"}
		if !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
		var none Permit
		none.Release()
		if none.For(hook) || !s.AllClosed("amy") {
			t.Error("the zero permit allows something")
		}
	})
}
