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

		p, wait := s.Acquire(hook)
		if !p.For(hook) || p.For(Key{"hook", "example.com"}) || wait != 0 {
			t.Fatalf("%+v, %v", p, wait)
		}
		p.Record(nil)
		if p.For(hook) || len(states) != 0 {
			t.Errorf("a used permit is live, or a quiet send was told: %v", states)
		}
		p, _ = s.Acquire(hook)
		p.Record(down)
		p.Record(nil) // the second record does not count
		if p, wait := s.Acquire(hook); p.For(hook) || wait != Interval {
			t.Errorf("asked an open breaker: %+v, %v", p, wait)
		}
		time.Sleep(Interval)
		p, _ = s.Acquire(hook)
		p.Release() // the probe sent nothing: soon another one may
		if p, wait := s.Acquire(hook); p.For(hook) || wait != probeWait {
			t.Errorf("after a probe given back: %+v, %v", p, wait)
		}
		time.Sleep(probeWait)
		p, _ = s.Acquire(hook)
		p.Record(nil)
		want := []string{"open", "open", "half_open", "open", "open", "half_open", "closed"}
		if !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
		var none Permit
		none.Release()
		if none.For(hook) || !s.AllClosed() {
			t.Error("the zero permit allows something")
		}
	})
}
