package dispatch

import (
	"sync"
	"time"
)

const (
	// maxHints is the most agents a listener is told of one by one.
	maxHints = 1024
	// linger is how long one is listened for who does not ask.
	linger = 10 * time.Second
	// between is how long one who was answered is thought to ask here again.
	between = 100 * time.Millisecond
	// trusted is how long hints are enough for one who asks again and again, and is
	// answered each time: one may be lost, and who it was about shall not starve.
	trusted = 2 * time.Second
)

// Hints tells those who wait for work where there may be some, when the list of it is
// kept elsewhere, for several registries. A hint may be wrong and may be missing: who is
// told looks at the list, and looks at all of it now and then. The zero value is ready.
//
// Between two questions of a holder it is listened for all the same, so that the next
// one need not look at everything again to have missed nothing.
type Hints struct {
	mu        sync.Mutex
	listeners map[*Listener]struct{}
	kept      map[string]*Listener // the last of each holder
}

// Listener is one who waits.
type Listener struct {
	of     *Hints
	wake   chan struct{}
	agents map[string]bool // true: it may be free
	all    bool

	ask  Ask
	busy bool
	left time.Time // when it was busy last
	seen time.Time // when it was to look at everything last
}

// Ask is a question for work, as far as it matters here.
type Ask struct {
	Holder, ID string
	MaxNew     int
}

// Listen makes a listener for a question. Its first hint is to look at everything,
// unless its holder has asked here before, has as much room as then, and has looked at
// everything of late; a question that is asked again looks at everything too, for the
// answer it has missed.
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

// Mark tells everybody of agents that may be free.
func (h *Hints) Mark(agents ...string) {
	h.tell(func(l *Listener) bool {
		for _, a := range agents {
			l.agents[a] = true
		}
		return true
	})
}

// MarkFor tells the holder of an agent's lease, whose business it is alone, and answers
// whether that one waits here, or has just been answered and will ask again.
func (h *Hints) MarkFor(holder, agent string) (here bool) {
	h.tell(func(l *Listener) bool {
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

// MarkAll tells everybody to look at everything.
func (h *Hints) MarkAll() { h.tell(func(l *Listener) bool { l.all = true; return true }) }

func (h *Hints) tell(note func(*Listener) (news bool)) {
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

// News is where there may be work.
type News struct {
	All  bool
	Mine []string // agents that the holder has
	Free []string // agents that he may have or get
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

// ScanAll makes the next hint one to look at everything.
func (l *Listener) ScanAll() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.all = true
}

// Close ends its question.
func (l *Listener) Close() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.busy, l.left = false, time.Now()
	if l.of.kept[l.ask.Holder] != l { // another question of the holder came meanwhile
		delete(l.of.listeners, l)
	}
}
