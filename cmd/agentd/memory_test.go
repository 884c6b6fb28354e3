//go:build linux

package main

import (
	"testing"
	"time"
)

// Memory is given back once after work, in the first interval in which nothing was done.
func TestIdleSince(t *testing.T) {
	idle := idleSince(time.Second)
	for i, step := range []struct {
		used time.Duration // since the start
		want bool
	}{
		{3 * time.Second, false},               // work
		{3*time.Second + 1, true},              // none: the work has ended
		{3*time.Second + 2, false},             // given back already
		{3*time.Second + checkEvery/50, false}, // work again
		{3*time.Second + checkEvery/50, true},
	} {
		if got := idle(step.used); got != step.want {
			t.Errorf("interval %d: %v", i, got)
		}
	}
	if processorTime() <= 0 {
		t.Error("no processor time of this process is known")
	}
}
