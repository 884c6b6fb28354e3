package store

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"
)

// Generation names a period in which each commit that an engine answered can be read
// again, although it is not on disk yet. It ends with the process, since it is not known then
// whether the machine or the file system has lost what was not on disk, and after an I/O
// error. What a delivery's row of an earlier generation says may therefore be older than
// what was done.
//
// The nil Generation never ends: every commit of its engine is on disk.
type Generation struct {
	mu    sync.Mutex
	base  string
	ended int
	since time.Time
}

// NewGeneration begins the first generation of a process.
func NewGeneration() *Generation {
	return &Generation{base: rand.Text(), since: time.Now()}
}

// Current returns the name of this generation, and when it began.
func (g *Generation) Current() (name string, since time.Time) {
	if g == nil {
		return "", time.Time{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%s/%d", g.base, g.ended), g.since
}

// Name is Current without the time.
func (g *Generation) Name() string {
	name, _ := g.Current()
	return name
}

// End begins the next one.
func (g *Generation) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended++
	g.since = time.Now()
}
