package unit

import (
	"context"
	"sync"

	"github.com/theclaw/agents/internal/store"
)

// line lets few writers of a thread in this process go to the server at once. The lock
// on the thread's row puts them in an order anyway, but who waits for that one holds a
// connection: some dozens who push to one agent would take all of them from the others.
type line struct {
	mu      sync.Mutex
	threads map[store.Ref]*queue
}

type queue struct {
	turn chan struct{} // holds one for each who writes
	n    int           // who write or wait
}

// abreast is how many go at once: one writes, and the next stands behind it at the
// server, so that the way there costs a busy thread no time.
const abreast = 2

// enter waits for the turn of the caller, who must leave. It fails as ctx ends.
func (l *line) enter(ctx context.Context, r store.Ref) (leave func(), err error) {
	l.mu.Lock()
	q := l.threads[r]
	if q == nil {
		if l.threads == nil {
			l.threads = map[store.Ref]*queue{}
		}
		q = &queue{turn: make(chan struct{}, abreast)}
		l.threads[r] = q
	}
	q.n++
	l.mu.Unlock()
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn; l.drop(r, q) }, nil
	case <-ctx.Done():
		l.drop(r, q)
		return nil, ctx.Err()
	}
}

func (l *line) drop(r store.Ref, q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.n--; q.n == 0 {
		delete(l.threads, r)
	}
}
