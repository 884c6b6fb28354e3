// Package line owns whose turn it is with the one connection of a database. Who finds it
// free has it at once. Who does not waits in a line, and whoever works for those who wait
// takes several of them at a time, until nobody waits:
//
//	        Enter: free              Next: nobody waits
//	free ------------------> busy ----------------------> free
//	                         |  ^
//	             Enter: waits|  |Next: some of those who wait
//	                         +--+
//
// It starts no goroutine and knows nothing of databases.
package line

import (
	"slices"
	"sync"

	"github.com/theclaw/agents/internal/store"
)

// Line is one; its zero value is free.
type Line[T comparable] struct {
	mu      sync.Mutex
	free    chan struct{} // closed when nobody works; nil: nobody asks
	busy    bool
	closed  bool
	waiting []T
}

// Enter takes the connection, if free, or a place behind who has it; wait is called
// before anybody can see that place. Errors: store.ErrClosed.
func (l *Line[T]) Enter(who T, wait func()) (free bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false, store.ErrClosed
	case !l.busy:
		l.busy = true
		return true, nil
	}
	wait()
	l.waiting = append(l.waiting, who)
	return false, nil
}

// Leave gives up a place; false when it was taken already.
func (l *Line[T]) Leave(who T) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, who)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

// Next takes those who wait, up to a number; when nobody does the connection is free. It
// is called by who has the connection. The answer may use the memory of batch.
func (l *Line[T]) Next(batch []T, most int) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(most, len(l.waiting))
	batch = append(batch[:0], l.waiting[:n]...)
	l.waiting = slices.Delete(l.waiting, 0, n)
	if n == 0 {
		l.busy = false
		if l.free != nil {
			close(l.free)
			l.free = nil
		}
	}
	return batch
}

// Close refuses who comes from now on, and waits for the others.
func (l *Line[T]) Close() {
	l.mu.Lock()
	l.closed = true
	var free chan struct{}
	if l.busy {
		if l.free == nil {
			l.free = make(chan struct{})
		}
		free = l.free
	}
	l.mu.Unlock()
	if free != nil {
		<-free
	}
}

// Waiting is how many wait.
func (l *Line[T]) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// Closed tells that nobody may come any more.
func (l *Line[T]) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
