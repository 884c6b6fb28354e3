//go:build linux

package main

import (
	"testing"
	"time"
)

// Memory is given back in the first intervals after work in which nothing was done.
func TestIdleSince(t *testing.T) {
	idle := idleSince(time.Second)
	used := 3 * time.Second
	for round := range 2 {
		if used += checkEvery / 50; idle(used) {
			t.Errorf("round %d: given back during work", round)
		}
		for n := range trims + 2 {
			used++
			if got, want := idle(used), n < trims; got != want {
				t.Errorf("round %d, idle interval %d: %v, want %v", round, n+1, got, want)
			}
		}
	}
	if processorTime() <= 0 {
		t.Error("no processor time of this process is known")
	}
}
