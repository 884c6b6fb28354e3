package dispatch

import "sync"

// maxHints is the most agents a listener is told of one by one.
const maxHints = 1024

// Hints tells those who wait for work where there may be some, when the list of it is
// kept elsewhere, for several registries. A hint may be wrong and may be missing: who is
// told looks at the list, and looks at all of it now and then. The zero value is ready.
type Hints struct {
	mu        sync.Mutex
	listeners map[*Listener]struct{}
}

// Listener is one who waits.
type Listener struct {
	of     *Hints
	wake   chan struct{}
	agents map[string]struct{}
	all    bool
}

// Listen makes a listener, whose first hint is to look at everything.
func (h *Hints) Listen() *Listener {
	l := &Listener{of: h, wake: make(chan struct{}, 1), agents: map[string]struct{}{}, all: true}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[*Listener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	return l
}

// Mark tells everybody of agents.
func (h *Hints) Mark(agents ...string) {
	h.tell(func(l *Listener) {
		for _, a := range agents {
			l.agents[a] = struct{}{}
		}
		l.all = l.all || len(l.agents) > maxHints
	})
}

// MarkAll tells everybody to look at everything.
func (h *Hints) MarkAll() { h.tell(func(l *Listener) { l.all = true }) }

func (h *Hints) tell(note func(*Listener)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		note(l)
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Wake receives when there are hints.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// Take answers the hints so far; nil is everything.
func (l *Listener) Take() (agents []string, any bool) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	any = l.all || len(l.agents) > 0
	if !l.all {
		agents = make([]string, 0, len(l.agents))
		for a := range l.agents {
			agents = append(agents, a)
		}
	}
	clear(l.agents)
	l.all = false
	return agents, any
}

// LookAtAll makes the next hint one to look at everything.
func (l *Listener) LookAtAll() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.all = true
}

// Close ends it.
func (l *Listener) Close() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	delete(l.of.listeners, l)
}
