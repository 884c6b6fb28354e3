package db

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/theclaw/agents/internal/store"
)

// queue says whose turn it is with the connection. Who finds it free works at once, in
// its own goroutine. Who does not waits, and a goroutine takes over from the first that
// works for those who wait until nobody does.
type queue struct {
	mu      sync.Mutex
	free    sync.Cond // nobody works
	busy    bool
	closed  bool
	waiting []*op
}

// enter takes the connection, if free, or a place behind who has it.
func (q *queue) enter(o *op) (free bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return false, store.ErrClosed
	case !q.busy:
		q.busy = true
		return true, nil
	}
	o.answered = make(chan struct{})
	q.waiting = append(q.waiting, o)
	return false, nil
}

// leave gives up a place; false when it was taken already.
func (q *queue) leave(o *op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, o)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// next takes those who wait, up to a number; when nobody does the connection is free.
func (q *queue) next(batch []*op, most int) []*op {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.waiting))
	batch = append(batch[:0], q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	if n == 0 {
		q.busy = false
		q.free.Broadcast()
	}
	return batch
}

// close refuses who comes from now on, and waits for the others.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.busy {
		q.free.Wait()
	}
}

// submit runs an operation when its turn comes.
func (d *DB) submit(ctx context.Context, o *op) error {
	if err := d.Broken(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	free, err := d.queue.enter(o)
	switch {
	case err != nil:
		return err
	case free:
		d.lead(o)
		return o.err
	}
	select {
	case <-o.answered:
	case <-ctx.Done():
		if d.queue.leave(o) {
			return ctx.Err()
		}
		<-o.answered // its turn has come all the same
	}
	return o.err
}

var errLeft = errors.New("who worked on the database left in the middle")

// lead runs the operation of who found the connection free.
func (d *DB) lead(o *op) {
	defer func() {
		if waiting := d.queue.next(nil, d.opts.Coalesce); len(waiting) > 0 {
			go d.follow(waiting)
		}
	}()
	d.alone[0] = o
	d.work(d.alone[:])
}

// follow runs what waits until nothing does.
func (d *DB) follow(batch []*op) {
	for len(batch) > 0 {
		d.work(batch)
		batch = d.queue.next(batch, d.opts.Coalesce)
	}
}

// work runs operations. Should it leave in the middle, by a bug in who is told of
// commits, nobody waits for ever.
func (d *DB) work(batch []*op) {
	whole := false
	defer func() {
		if !whole {
			d.breakWith(errLeft)
			for _, o := range batch {
				o.answer(errLeft)
			}
		}
		clear(batch)
	}()
	if err := d.stillThere(); err != nil {
		d.breakWith(err)
	}
	d.runBatch(batch)
	whole = true
}

// answer tells who waits for an operation that it is over; once.
func (o *op) answer(err error) {
	if o.over {
		return
	}
	o.over = true
	if o.err == nil {
		o.err = err
	}
	if o.answered != nil {
		close(o.answered)
	}
}
