package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much the heap grows until it is collected, in percent of what is in use, which is 6 MB with
// few conversations: mostPercent halves the collections of Go's default there, and so their cost.
// With hundreds of conversations 20 MB are in use, and memory counts for more: from headroom /
// mostPercent on the heap grows by headroom only, down to leastPercent, Go's default. Measured in
// docs/decisions/029-memory-of-open-databases.md.
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

// afterCollection calls fn after each collection: something that is not used is found by the
// next one, and replaced.
func afterCollection(fn func()) {
	type unused struct{ _ *byte } // with a pointer: small ones without are put together
	runtime.AddCleanup(&unused{}, func(fn func()) {
		fn()
		afterCollection(fn)
	}, fn)
}
