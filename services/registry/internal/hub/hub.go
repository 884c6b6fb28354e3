// Package hub notifies the calls of this registry that wait for a change of a thread, a
// turn or an approval. A waiter subscribes first and reads the state afterwards, so that
// it misses no change in between; a topic without waiters takes no memory.
package hub

import "sync"

// Hub wakes waiters by topic. The zero value is ready.
type Hub[T comparable] struct {
	mu     sync.Mutex
	topics map[T]*topic
}

type topic struct {
	ch    chan struct{}
	users int
}

// Wait returns a channel that is closed at the next Wake of t, and a function that ends the
// wait.
func (h *Hub[T]) Wait(t T) (<-chan struct{}, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.topics == nil {
		h.topics = map[T]*topic{}
	}
	p := h.topics[t]
	if p == nil {
		p = &topic{ch: make(chan struct{})}
		h.topics[t] = p
	}
	p.users++
	return p.ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if p.users--; p.users == 0 && h.topics[t] == p {
			delete(h.topics, t)
		}
	}
}

// WakeAll wakes all waiters.
func (h *Hub[T]) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t, p := range h.topics {
		close(p.ch)
		delete(h.topics, t)
	}
}

// Wake wakes the waiters of t.
func (h *Hub[T]) Wake(t T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.topics[t]; p != nil {
		close(p.ch)
		delete(h.topics, t)
	}
}
