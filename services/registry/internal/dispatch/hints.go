package dispatch

import (
	"sync"
	"time"
)

const (
	// maxHints is the most agents that are queued for a listener one by one.
	maxHints = 1024
	// linger is how long a listener stays registered without a request.
	linger = 10 * time.Second
	// between is how long a holder with a response is expected to poll here again.
	between = 100 * time.Millisecond
	// trusted is how long a holder that polls continuously gets hints alone: a hint may be
	// lost, and its agent must not starve.
	trusted = 2 * time.Second
)

// Hints names the agents that may have work to the workers that poll, where the list is in
// a database that several registries share. A hint may be wrong or missing: a worker
// queries the list for the agents named, and queries all of it now and then. The zero value
// is ready.
//
// A listener stays registered between two requests of its holder, so that the next one
// need not query everything to miss nothing.
type Hints struct {
	mu        sync.Mutex
	listeners map[*Listener]struct{}
	kept      map[string]*Listener // the last of each holder
}

// Listener collects the hints for one holder.
type Listener struct {
	of     *Hints
	wake   chan struct{}
	agents map[string]bool // true: it may be free
	all    bool

	ask  Ask
	busy bool
	left time.Time // when it was busy last
	seen time.Time // when it last had to query everything
}

// Ask is the part of a request for work that matters here.
type Ask struct {
	Holder, ID string
	MaxNew     int
}

// Listen makes a listener for a request. Its first hint is to query everything, unless its
// holder has polled here before, may take as many new agents as then, and has queried
// everything recently. The repeat of a request queries everything too, because it has
// missed its response.
func (h *Hints) Listen(a Ask) *Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners, h.kept = map[*Listener]struct{}{}, map[string]*Listener{}
	}
	for holder, l := range h.kept {
		if !l.busy && time.Since(l.left) > linger {
			delete(h.kept, holder)
			delete(h.listeners, l)
		}
	}
	l := h.kept[a.Holder]
	if l == nil || l.busy {
		l = &Listener{of: h, wake: make(chan struct{}, 1), agents: map[string]bool{}, all: true}
		h.listeners[l], h.kept[a.Holder] = struct{}{}, l
	}
	l.all = l.all || l.ask.ID == a.ID || l.ask.MaxNew != a.MaxNew || time.Since(l.seen) > trusted
	l.ask, l.busy = a, true
	return l
}

// Mark names agents that may be free to all listeners.
func (h *Hints) Mark(agents ...string) {
	h.notify(func(l *Listener) bool {
		for _, a := range agents {
			l.agents[a] = true
		}
		return true
	})
}

// MarkFor names an agent to the holder of its lease alone, and reports whether that holder
// waits here, or has just had a response and will poll again.
func (h *Hints) MarkFor(holder, agent string) (here bool) {
	h.notify(func(l *Listener) bool {
		if l.ask.Holder != holder {
			return false
		}
		if !l.agents[agent] { // it may be free all the same
			l.agents[agent] = false
		}
		here = here || l.busy || time.Since(l.left) < between
		return true
	})
	return here
}

// MarkAll makes all listeners query everything.
func (h *Hints) MarkAll() { h.notify(func(l *Listener) bool { l.all = true; return true }) }

func (h *Hints) notify(note func(*Listener) (news bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		if !note(l) {
			continue
		}
		if len(l.agents) > maxHints {
			l.all = true
			clear(l.agents)
		}
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Wake receives when there are hints.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// News names the agents that may have work.
type News struct {
	All  bool
	Mine []string // agents that the holder has
	Free []string // agents that it may have or get
}

// Take returns the hints so far; false when there are none.
func (l *Listener) Take() (n News, any bool) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	any, n.All = l.all || len(l.agents) > 0, l.all
	if l.all {
		l.seen = time.Now()
	} else {
		for a, free := range l.agents {
			if free {
				n.Free = append(n.Free, a)
			} else {
				n.Mine = append(n.Mine, a)
			}
		}
	}
	clear(l.agents)
	l.all = false
	return n, any
}

// ScanAll makes the next hint one to query everything.
func (l *Listener) ScanAll() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.all = true
}

// Close ends the request.
func (l *Listener) Close() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.busy, l.left = false, time.Now()
	if l.of.kept[l.ask.Holder] != l { // another question of the holder came meanwhile
		delete(l.of.listeners, l)
	}
}
