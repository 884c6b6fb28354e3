package db

import (
	"context"
	"errors"
)

// submit runs an operation when its turn comes.
func (d *DB) submit(ctx context.Context, o *op) error {
	if err := d.Broken(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	free, err := d.queue.enter(o, func() { o.answered = make(chan struct{}) })
	switch {
	case err != nil:
		return err
	case free:
		d.runFirst(o)
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

// runFirst runs an operation that found the connection free in its caller's goroutine.
func (d *DB) runFirst(o *op) {
	defer func() {
		if waiting := d.queue.next(nil, d.opts.Coalesce); len(waiting) > 0 {
			go d.runQueue(waiting)
		}
	}()
	d.alone[0] = o
	d.work(d.alone[:])
}

// runQueue runs the waiters until there are none.
func (d *DB) runQueue(batch []*op) {
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
	d.measure()
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
