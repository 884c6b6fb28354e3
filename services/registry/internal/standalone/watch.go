package standalone

import (
	"context"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch notices what no call has reported: messages that another
// program wrote into an inbox, directories that came, went or broke, and work that
// lost its mark.
//
//	kernel (fsnotify) --hint, milliseconds--> poll --+
//	sweep, once per interval, finds the rest --------+--> head risen: agent is due
//
// The hint may miss and may come too early; the sweep does neither. It changes nothing
// in an inbox but the subscription that must agree with the desired state.
type watch struct {
	r     *Registry
	every time.Duration
	fs    *fsnotify.Watcher // nil where the kernel has no more watches
	polls chan string       // agents whose inbox another program may have written

	mu     sync.Mutex
	byPath map[string]string // inbox directory -> agent
	again  map[string]bool   // agents polled again soon; true: written meanwhile
	made   map[string]int    // agents being made here

	begun    time.Time // before the registry serves
	sweeping sync.Mutex
	counted  [2]int64 // commits the metrics know of: full, lazy; the sweep's own
}

// newWatch returns the watch of a home; from now on the kernel queues its events until run
// reads them. Every is the interval of the sweep.
func newWatch(r *Registry, every time.Duration) *watch {
	w := &watch{r: r, every: every, begun: time.Now(), polls: make(chan string, 1024), byPath: map[string]string{}, again: map[string]bool{}, made: map[string]int{}}
	w.notify()
	return w
}

// run watches and sweeps until ctx ends.
func (w *watch) run(ctx context.Context) {
	var g sync.WaitGroup
	for _, loop := range []func(context.Context){w.sweepLoop, w.pollLoop, w.notifyLoop} {
		g.Go(func() { loop(ctx) })
	}
	g.Wait()
}

// close ends the watches.
func (w *watch) close() error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Close()
}

// rescan reads the names of the agents: new ones are watched, those that are gone
// are forgotten.
func (w *watch) rescan() error {
	fresh, gone, err := w.r.Agents.Scan()
	if err != nil {
		return w.r.Fault("", "", err)
	}
	for _, id := range gone {
		if w.r.Missing(id) { // else it is back already, as a new agent
			w.r.forget(id)
		}
	}
	for _, id := range fresh {
		w.found(id)
	}
	return nil
}

// found takes up an agent that is new.
func (w *watch) found(id string) {
	if a, err := w.r.Get(id); err == nil {
		w.add(a)
		w.poll(id)
	}
}
