package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much the heap grows until it is collected, in percent of what is in use. In use are some
// ten megabytes with few conversations: with mostPercent, half the collections of Go's default
// cost as much again at most. With hundreds of conversations at once in use is twice as much,
// and three times that is more than collecting costs: from so much on that mostPercent of it is
// headroom, the heap grows by headroom only, down to leastPercent, Go's default.
const (
	mostPercent  = 200
	leastPercent = 100
	headroom     = 24 << 20
)

// percentOf is how much a heap may grow of which so many bytes are in use.
func percentOf(inUse uint64) int {
	return int(min(max(headroom*100/max(inUse, 1), leastPercent), mostPercent))
}

// tuneCollector sets it after each collection from now on.
func tuneCollector() {
	debug.SetGCPercent(mostPercent)
	set := mostPercent
	use := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	afterCollection(func() {
		metrics.Read(use)
		// Setting it stops the process for some microseconds.
		if p := percentOf(use[0].Value.Uint64() + use[1].Value.Uint64()); p > set+10 || p < set-10 || p != set && (p == mostPercent || p == leastPercent) {
			debug.SetGCPercent(p)
			set = p
		}
	})
}

// afterCollection calls fn after each collection: something that nobody uses is found by the
// next one, and replaced.
func afterCollection(fn func()) {
	type unused struct{ next *unused }
	runtime.AddCleanup(&unused{}, func(fn func()) {
		fn()
		afterCollection(fn)
	}, fn)
}
