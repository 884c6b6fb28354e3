// Package watch owns noticing what no call has told: messages that another
// program wrote into an inbox, directories that came, went or broke, and work that
// lost its mark.
//
//	kernel (fsnotify) --hint, milliseconds--> look --+
//	sweep, once per interval, finds the rest --------+--> head risen: agent is due
//
// The hint may miss and may come too early; the sweep does neither. It promises
// that our own writes are not taken for foreign ones twice, and that an agent that
// cannot be read stops nobody else. It changes nothing in an inbox but the
// subscription that must agree with the desired state.
package watch

import (
	"context"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/theclaw/agents/services/registry/internal/core"
)

// Watch looks at the inboxes of a home.
type Watch struct {
	*core.Core
	every time.Duration
	fs    *fsnotify.Watcher // nil where the kernel has no more to give
	looks chan string       // agents whose inbox another program may have written

	mu     sync.Mutex
	byPath map[string]string // inbox directory -> agent
	again  map[string]bool   // agents looked at again soon; true: written meanwhile
	making map[string]int    // agents being made here

	sweeping sync.Mutex
	counted  [2]int64 // commits the metrics know of: full, lazy; the sweep's own
}

// New makes the watch of a home; from now on the kernel keeps what it tells until
// Run reads it. Every is the interval of the sweep.
func New(c *core.Core, every time.Duration) *Watch {
	w := &Watch{Core: c, every: every, looks: make(chan string, 1024), byPath: map[string]string{}, again: map[string]bool{}, making: map[string]int{}}
	w.notify()
	return w
}

// Run watches and sweeps until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var g sync.WaitGroup
	for _, loop := range []func(context.Context){w.sweepLoop, w.lookLoop, w.notifyLoop} {
		g.Go(func() { loop(ctx) })
	}
	g.Wait()
}

// Close ends what the kernel tells.
func (w *Watch) Close() error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Close()
}

// Rescan reads the names of the agents: new ones are watched, those that are gone
// are forgotten.
func (w *Watch) Rescan() error {
	fresh, gone, err := w.Dir.Scan()
	if err != nil {
		return w.Fault("", "", err)
	}
	for _, id := range gone {
		if w.Dir.Missing(id) { // else it is back already, as a new agent
			w.Forget(id)
		}
	}
	for _, id := range fresh {
		w.found(id)
	}
	return nil
}

// found takes up an agent that is new.
func (w *Watch) found(id string) {
	if a, err := w.Dir.Get(id); err == nil {
		w.Add(a)
		w.look(id)
	}
}
