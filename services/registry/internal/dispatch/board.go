// Package dispatch lists the agents that have work and offers them to the workers that
// poll for work, oldest first.
//
//	Mark --> [ due: a, c, b ] --Take--> worker     (no mark is lost: an
//	            ^                         |         agent leaves the list only
//	            +---- Mark again ---------+         once a worker has it)
//
// An agent is on the list at most once. The offer function decides whether a worker may
// have it; an agent that somebody else holds stays where it is. Hints and Follows do the
// same for registries that share the list in a database. The package grants no leases,
// knows no databases, and starts no goroutines: waiting is on a channel that Mark closes.
package dispatch

import (
	"sync"
	"time"
)

// Board lists agents with work of one kind.
type Board struct {
	mu    sync.Mutex
	due   map[string]*work
	first *work // oldest; a ring would hide the order
	last  *work
	marks uint64 // so far
	wake  chan struct{}
}

type work struct {
	agent      string
	threads    map[string]uint64 // with the mark that last named it
	marked     uint64            // the last mark
	since      time.Time         // of the first one
	prev, next *work
}

// New makes an empty board.
func New() *Board { return &Board{due: map[string]*work{}, wake: make(chan struct{})} }

// Mark puts agent on the list, with the threads that have work if that matters, and wakes
// the waiters.
func (b *Board) Mark(agent string, threads ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.due[agent]
	if w == nil {
		w = &work{agent: agent, prev: b.last, since: time.Now()}
		if b.last == nil {
			b.first = w
		} else {
			b.last.next = w
		}
		b.last = w
		b.due[agent] = w
	}
	b.marks++
	w.marked = b.marks
	for _, t := range threads {
		if w.threads == nil {
			w.threads = map[string]uint64{}
		}
		w.threads[t] = b.marks
	}
	b.wakeLocked()
}

// Wake makes the waiters offer again: what they may take has changed.
func (b *Board) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeLocked()
}

func (b *Board) wakeLocked() {
	close(b.wake)
	b.wake = make(chan struct{})
}

// Drop takes agent off the list: it was stopped or is gone.
func (b *Board) Drop(agent string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeLocked(agent)
}

func (b *Board) removeLocked(agent string) {
	w := b.due[agent]
	if w == nil {
		return
	}
	delete(b.due, agent)
	if w.prev == nil {
		b.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		b.last = w.prev
	} else {
		w.next.prev = w.prev
	}
}

// Item is work taken off the list.
type Item struct {
	Agent   string
	Threads []string
	Since   time.Time // when it came onto the list
}

// Take offers the agents in order and takes those that offer accepts; stop ends
// the round. offer is called without the board's lock, so it may do I/O. An agent
// stays on the list while it is offered: a mark that comes meanwhile survives it,
// and another taker, which may get it, sees it too. The returned channel is closed
// at the next change after the round began.
func (b *Board) Take(offer func(agent string) (accept, stop bool)) ([]Item, <-chan struct{}) {
	b.mu.Lock()
	wake := b.wake
	names := make([]string, 0, len(b.due))
	for w := b.first; w != nil; w = w.next {
		names = append(names, w.agent)
	}
	b.mu.Unlock()
	var out []Item
	for _, a := range names {
		w, it, seen := b.item(a)
		if w == nil {
			continue
		}
		accept, stop := offer(a)
		if accept {
			out = append(out, it)
			b.taken(w, seen)
		}
		if stop {
			break
		}
	}
	return out, wake
}

// item returns what is on the list for agent, and the newest mark.
func (b *Board) item(agent string) (w *work, it Item, seen uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w = b.due[agent]
	if w == nil {
		return nil, it, 0
	}
	it.Agent, it.Since = agent, w.since
	for t := range w.threads {
		it.Threads = append(it.Threads, t)
	}
	return w, it, b.marks
}

// taken takes off the list what was marked up to seen.
func (b *Board) taken(w *work, seen uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for t, mark := range w.threads {
		if mark <= seen {
			delete(w.threads, t)
		}
	}
	if w.marked <= seen && b.due[w.agent] == w {
		b.removeLocked(w.agent)
	}
}

// Len is the number of agents on the list.
func (b *Board) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.due)
}
