package standalone

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// pollDelays are the times after a write at which an inbox is read once more: the kernel
// reports the write before SQLite makes the commit visible, and nothing reports that. The
// last one is for a busy machine and a large event.
var pollDelays = []time.Duration{
	3 * time.Millisecond, 12 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond, 300 * time.Millisecond,
}

// ownWrite is how soon after a write of this process the kernel has reported it.
const ownWrite = 20 * time.Millisecond

// notify subscribes to changes of the agents' directory.
func (w *watch) notify() {
	fs, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		w.r.log.Warn("inboxes are not watched; the next scan finds what other programs wrote", "error", err)
		return
	}
	w.fs = fs
	if err := fs.Add(w.r.home.AgentsDir()); err != nil {
		w.r.log.Warn("new agents are found by the periodic scan only", "error", err)
	}
}

// add watches the inbox of an agent.
func (w *watch) add(a *state.Agent) {
	if w.fs == nil {
		return
	}
	path, err := w.r.Path(store.Inbox(a.ID))
	if err != nil {
		return
	}
	w.mu.Lock()
	_, known := w.byPath[path]
	w.byPath[path] = a.ID
	w.mu.Unlock()
	if known {
		return
	}
	if err := w.fs.Add(path); err != nil {
		w.mu.Lock()
		delete(w.byPath, path)
		w.mu.Unlock()
	}
}

// drop ends the watches below a directory that was replaced: a watch belongs to the old
// directory, not to the name.
func (w *watch) drop(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path := range w.byPath {
		if strings.HasPrefix(path, dir+"/") {
			delete(w.byPath, path)
			_ = w.fs.Remove(path) // not watched is as good
		}
	}
}

func (w *watch) notifyLoop(ctx context.Context) {
	if w.fs == nil {
		<-ctx.Done()
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			w.event(e)
		case err, ok := <-w.fs.Errors:
			if !ok {
				return
			}
			// The kernel's queue overflowed: scan everything.
			w.r.log.Warn("watch lost events; scanning all inboxes", "error", err)
			w.sweep(ctx)
		}
	}
}

// checkName scans the agents' directory for one name. An agent that is being created here
// is added at the end of that.
func (w *watch) checkName(id string) {
	w.mu.Lock()
	making := w.made[id] > 0
	w.mu.Unlock()
	if making {
		return
	}
	switch fresh, gone := w.r.Agents.ScanOne(id); {
	case fresh:
		w.found(id)
	case gone && w.r.Missing(id): // else it is back already, as a new agent
		w.r.forget(id)
	}
}

// making notes that an agent is being created here, until done is called.
func (w *watch) making(id string) (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[id]++
	return func() {
		w.mu.Lock()
		if w.made[id]--; w.made[id] == 0 {
			delete(w.made, id)
		}
		w.mu.Unlock()
		w.checkName(id) // another may have made or removed it meanwhile
	}
}

func (w *watch) event(e fsnotify.Event) {
	dir, file := filepath.Split(e.Name)
	dir = filepath.Clean(dir)
	if dir == w.r.home.AgentsDir() {
		if e.Has(fsnotify.Create | fsnotify.Remove | fsnotify.Rename) {
			w.checkName(file)
		}
		return
	}
	w.mu.Lock()
	id := w.byPath[dir]
	if id == "" && e.Has(fsnotify.Remove) {
		delete(w.byPath, filepath.Clean(e.Name))
	}
	w.mu.Unlock()
	if id != "" && strings.HasPrefix(file, "events.db") && writes(file, e.Op) {
		w.written(id)
	}
}

// writes reports whether there may be a new event: a reader, too, creates and removes a log,
// and this process sets the time of a database that it closes.
func writes(file string, op fsnotify.Op) bool {
	switch {
	case strings.HasSuffix(file, "-shm"), op == fsnotify.Chmod:
		return false
	case strings.HasSuffix(file, "-wal"):
		return op.Has(fsnotify.Write)
	}
	return true
}

// written polls at once, unless the write is most likely our own: then the later polls
// suffice for a foreign one at the same time.
func (w *watch) written(id string) {
	if a, err := w.r.Get(id); err == nil && a.WroteWithin(ownWrite) {
		w.pollAgain(id, pollDelays[1:])
		return
	}
	w.poll(id)
	w.pollAgain(id, pollDelays)
}

// pollAgain polls an inbox after each delay, and repeats that when it was written
// meanwhile.
func (w *watch) pollAgain(id string, after []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, soon := w.again[id]; soon {
		w.again[id] = true
		return
	}
	w.again[id] = false
	for i, d := range after {
		time.AfterFunc(d, func() {
			w.poll(id)
			if i == len(after)-1 {
				w.endRound(id)
			}
		})
	}
}

func (w *watch) endRound(id string) {
	w.mu.Lock()
	written := w.again[id]
	delete(w.again, id)
	w.mu.Unlock()
	if written {
		w.pollAgain(id, pollDelays[1:])
	}
}
