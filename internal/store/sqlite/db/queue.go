package db

import (
	"slices"
	"sync"

	"github.com/theclaw/agents/internal/store"
)

// queue says which operation has the one connection of a database. An operation that finds
// the connection free has it at once. The others wait in a queue, and the goroutine that
// works for them takes several at a time, until none waits:
//
//	        enter: free              next: nobody waits
//	free ------------------> busy ----------------------> free
//	                         |  ^
//	             enter: waits|  |next: some of the waiters
//	                         +--+
//
// It starts no goroutine and knows nothing of databases. The zero value is free.
type queue[T comparable] struct {
	mu      sync.Mutex
	free    chan struct{} // closed when the connection is free; nil: close does not wait
	busy    bool
	closed  bool
	waiting []T
}

// enter takes the connection, if free, or a place in the queue; wait is called before
// anybody can see that place. Errors: store.ErrClosed.
func (q *queue[T]) enter(op T, wait func()) (free bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return false, store.ErrClosed
	case !q.busy:
		q.busy = true
		return true, nil
	}
	wait()
	q.waiting = append(q.waiting, op)
	return false, nil
}

// leave gives up a place; false when it was taken already.
func (q *queue[T]) leave(op T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, op)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// next takes up to most waiters; when there is none the connection is free. The holder of
// the connection calls it. The result may use the memory of batch.
func (q *queue[T]) next(batch []T, most int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.waiting))
	batch = append(batch[:0], q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	if n == 0 {
		q.busy = false
		if q.free != nil {
			close(q.free)
			q.free = nil
		}
	}
	return batch
}

// close refuses new operations and waits for the others.
func (q *queue[T]) close() {
	q.mu.Lock()
	q.closed = true
	var free chan struct{}
	if q.busy {
		if q.free == nil {
			q.free = make(chan struct{})
		}
		free = q.free
	}
	q.mu.Unlock()
	if free != nil {
		<-free
	}
}

// length is the number of waiters.
func (q *queue[T]) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// isClosed reports whether new operations are refused.
func (q *queue[T]) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}
