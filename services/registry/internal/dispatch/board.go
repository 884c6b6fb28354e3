// Package dispatch owns the list of agents that have work, and hands them to
// those who ask for work, oldest first.
//
//	Mark --> [ due: a, c, b ] --Take--> asker      (nobody loses a mark: an
//	            ^                         |         agent is off the list only
//	            +---- Mark again ---------+         while its taker has it)
//
// An agent stands on the list at most once. Whether a taker may have it is asked
// of the offer function: it may be held by somebody else, and then it stays where
// it is. The package knows neither leases nor databases, and starts no
// goroutines: waiting is on a channel that Mark closes.
package dispatch

import "sync"

// Board lists agents with work of one kind.
type Board struct {
	mu    sync.Mutex
	due   map[string]*work
	first *work // oldest; a ring would hide the order
	last  *work
	wake  chan struct{}
}

type work struct {
	agent      string
	threads    map[string]struct{}
	prev, next *work
}

// New makes an empty board.
func New() *Board { return &Board{due: map[string]*work{}, wake: make(chan struct{})} }

// Mark puts agent on the list, with the threads that have work if that matters,
// and wakes those who wait.
func (b *Board) Mark(agent string, threads ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.due[agent]
	if w == nil {
		w = &work{agent: agent, prev: b.last}
		if b.last == nil {
			b.first = w
		} else {
			b.last.next = w
		}
		b.last = w
		b.due[agent] = w
	}
	for _, t := range threads {
		if w.threads == nil {
			w.threads = map[string]struct{}{}
		}
		w.threads[t] = struct{}{}
	}
	b.wakeLocked()
}

// Wake makes those who wait look again: what they may take has changed.
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

func (b *Board) removeLocked(agent string) *work {
	w := b.due[agent]
	if w == nil {
		return nil
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
	return w
}

// Item is work taken off the list.
type Item struct {
	Agent   string
	Threads []string
}

// Take offers the agents in order and takes those that offer accepts; stop ends
// the round. offer is called without the board's lock, so it may do I/O; an
// agent marked again meanwhile is simply on the list again. The channel answered
// is closed at the next change after the round began.
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
		// Taken off first: a mark that comes during the offer then survives it.
		b.mu.Lock()
		w := b.removeLocked(a)
		b.mu.Unlock()
		if w == nil {
			continue
		}
		accept, stop := offer(a)
		if accept {
			it := Item{Agent: a}
			for t := range w.threads {
				it.Threads = append(it.Threads, t)
			}
			out = append(out, it)
		} else {
			b.restore(w)
		}
		if stop {
			break
		}
	}
	return out, wake
}

// restore puts refused work back at the front of the list without waking
// anybody: nothing has changed for those who wait.
func (b *Board) restore(w *work) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.due[w.agent]; now != nil {
		for t := range w.threads {
			if now.threads == nil {
				now.threads = map[string]struct{}{}
			}
			now.threads[t] = struct{}{}
		}
		return
	}
	w.prev, w.next = nil, b.first
	if b.first == nil {
		b.last = w
	} else {
		b.first.prev = w
	}
	b.first = w
	b.due[w.agent] = w
}

// Len is the number of agents on the list.
func (b *Board) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.due)
}
