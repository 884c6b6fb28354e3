package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// S4-42: a delay is off, natural or bounds of at most 30 s, and always within them.
func TestDelay(t *testing.T) {
	f := Lookup("human_delay")
	for text, want := range map[string]struct {
		delay   Delay
		problem string
	}{
		"off":                       {Delay{}, ""},
		"natural":                   {Delay{800 * time.Millisecond, 2500 * time.Millisecond}, ""},
		"{min: 1s, max: 3s}":        {Delay{time.Second, 3 * time.Second}, ""},
		"{min: 0s, max: 0s}":        {Delay{}, ""},
		"{min: 3s, max: 1s}":        {Delay{}, "not 0s <= min <= max"},
		"{min: -1s, max: 1s}":       {Delay{}, "not 0s <= min <= max"},
		"{min: 1s, max: 31s}":       {Delay{}, "<= 30s"},
		"{min: 1s}":                 {Delay{}, "no max"},
		"{min: 1s, max: x}":         {Delay{}, "max must be a duration"},
		"{min: 1s, max: 2s, a: 1s}": {Delay{}, "more than"},
		"1s":                        {Delay{}, "off, natural"},
		"min: 1s, max: 2s":          {Delay{}, "off, natural"},
		"":                          {Delay{}, "off, natural"},
	} {
		c := Default()
		problem := f.Parse(&c, text)
		if (problem == "") != (want.problem == "") || !strings.Contains(problem, want.problem) || problem == "" && c.HumanDelay != want.delay {
			t.Errorf("%q: %v, %q", text, c.HumanDelay, problem)
		}
		if problem != "" {
			continue
		}
		again := Default()
		if problem := f.Parse(&again, f.Show(&c)); problem != "" || again.HumanDelay != c.HumanDelay {
			t.Errorf("%q is shown as %q: %s", text, f.Show(&c), problem)
		}
		seen := map[time.Duration]bool{}
		for n := range 1000 {
			key := fmt.Sprint("key", n)
			d := c.HumanDelay.For(key)
			if seen[d] = true; d < c.HumanDelay.Min || d > c.HumanDelay.Max || d != c.HumanDelay.For(key) {
				t.Fatalf("%q: %s", text, d)
			}
		}
		if c.HumanDelay != (Delay{}) && len(seen) < 900 {
			t.Errorf("%q: %d of 1000 are different", text, len(seen))
		}
	}
}
