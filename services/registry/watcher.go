package registry

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// watcher notices within milliseconds that another program has written to an
// inbox. It is a hint only: what it misses, the sweep finds.
type watcher struct {
	s  *Service
	fs *fsnotify.Watcher // nil where the kernel has no more to give

	mu     sync.Mutex
	byPath map[string]string // inbox directory -> agent
	again  map[string]bool   // agents looked at again soon; true: written meanwhile
}

// looksAgain are the times after a write at which an inbox is looked at once
// more: the kernel tells of the write before SQLite makes the commit visible,
// and nothing tells of that. The last one is for a busy machine and a large event.
var looksAgain = []time.Duration{
	3 * time.Millisecond, 12 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond, 300 * time.Millisecond,
}

// ownWrite is how soon after a write of ours the kernel has told of it.
const ownWrite = 20 * time.Millisecond

func newWatcher(s *Service) *watcher {
	w := &watcher{s: s, byPath: map[string]string{}, again: map[string]bool{}}
	fs, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		s.log.Warn("inboxes are not watched; the sweep finds foreign messages", "error", err)
		return w
	}
	w.fs = fs
	if err := fs.Add(s.home.AgentsDir()); err != nil {
		s.log.Warn("new agents are found by the sweep only", "error", err)
	}
	return w
}

func (w *watcher) close() error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Close()
}

func (w *watcher) add(a *directory.Agent) {
	if w.fs == nil {
		return
	}
	path, err := w.s.dir.Path(store.Inbox(a.ID))
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

func (w *watcher) loop(ctx context.Context) {
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
			// The kernel's queue ran over: look everywhere.
			w.s.log.Warn("watch lost events; looking at all inboxes", "error", err)
			w.s.sweep(ctx)
		}
	}
}

func (w *watcher) event(e fsnotify.Event) {
	dir, file := filepath.Split(e.Name)
	dir = filepath.Clean(dir)
	if dir == w.s.home.AgentsDir() {
		if e.Has(fsnotify.Create | fsnotify.Remove | fsnotify.Rename) {
			if err := w.s.rescan(); err != nil {
				w.s.log.Error("agents not scanned", "error", err)
			}
		}
		return
	}
	w.mu.Lock()
	id := w.byPath[dir]
	if id == "" && e.Has(fsnotify.Remove) {
		delete(w.byPath, filepath.Clean(e.Name))
	}
	w.mu.Unlock()
	if id != "" && strings.HasPrefix(file, "events.db") && !strings.HasSuffix(file, "-shm") {
		w.written(id)
	}
}

// written looks at once, unless the write is most likely our own: then the later
// looks are enough for a foreign one that hides behind it.
func (w *watcher) written(id string) {
	if a, err := w.s.dir.Get(id); err == nil && a.WroteWithin(ownWrite) {
		w.lookAgain(id, looksAgain[1:])
		return
	}
	w.s.look(id)
	w.lookAgain(id, looksAgain)
}

// lookAgain looks at an inbox after each time given, and once more around
// when it was written meanwhile.
func (w *watcher) lookAgain(id string, after []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, soon := w.again[id]; soon {
		w.again[id] = true
		return
	}
	w.again[id] = false
	for i, d := range after {
		time.AfterFunc(d, func() {
			w.s.look(id)
			if i == len(after)-1 {
				w.endRound(id)
			}
		})
	}
}

func (w *watcher) endRound(id string) {
	w.mu.Lock()
	written := w.again[id]
	delete(w.again, id)
	w.mu.Unlock()
	if written {
		w.lookAgain(id, looksAgain[1:])
	}
}
