package db

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/theclaw/agents/internal/store"
)

func (d *DB) work() {
	defer close(d.done)
	batch := make([]*op, 0, d.opts.Coalesce)
	for {
		var first *op
		select {
		case first = <-d.queue:
		case <-d.stop:
			select { // stop loses against queued work
			case first = <-d.queue:
			default:
				return
			}
		}
		batch = append(batch[:0], first)
	gather:
		for len(batch) < d.opts.Coalesce {
			select {
			case o := <-d.queue:
				batch = append(batch, o)
			default:
				break gather
			}
		}
		d.runBatch(batch)
	}
}

// runBatch runs views and groups of writes in the order of the queue.
func (d *DB) runBatch(batch []*op) {
	for i := 0; i < len(batch); {
		if batch[i].view {
			d.runView(batch[i])
			i++
			continue
		}
		j := i
		for j < len(batch) && !batch[j].view {
			j++
		}
		d.runGroup(batch[i:j])
		i = j
	}
}

func (d *DB) runView(o *op) {
	defer close(o.answered)
	if o.err = d.Broken(); o.err != nil {
		return
	}
	o.err = d.note(call(o.fn, &Tx{d: d}))
}

func (d *DB) runGroup(group []*op) {
	committed := d.commitGroup(group)
	if committed && d.opts.OnCommit != nil {
		for _, o := range group {
			if o.err == nil && len(o.events) > 0 {
				d.opts.OnCommit(o.events)
			}
		}
	}
	for _, o := range group {
		close(o.answered)
	}
	if !committed {
		return
	}
	// After the answers: the mirror is a convenience and nobody waits for it.
	for _, o := range group {
		if o.err == nil && len(o.events) > 0 {
			d.out.append(d, o.events)
		}
	}
}

func (d *DB) commitGroup(group []*op) bool {
	fail := func(err error) bool {
		for _, o := range group {
			if o.err == nil {
				o.err = err
			}
		}
		return false
	}
	if err := d.Broken(); err != nil {
		return fail(err)
	}
	durable := false
	for _, o := range group {
		durable = durable || o.durable
	}
	if durable != d.full {
		if err := d.setSync(durable); err != nil {
			return fail(d.note(err))
		}
	}
	if err := d.exec("BEGIN IMMEDIATE"); err != nil {
		return fail(d.note(err))
	}
	before, kept := d.chain, 0
	for _, o := range group {
		if d.runOp(o, len(group) > 1) {
			kept++
		}
	}
	if kept == 0 {
		d.chain = before
		if err := d.exec("ROLLBACK"); err != nil {
			_ = d.note(err)
		}
		return false
	}
	if err := d.exec("COMMIT"); err != nil {
		// Never retried: whether the commit is on disk is unknown, and only a
		// fresh look at the file can tell.
		d.chain = before
		_ = d.exec("ROLLBACK")
		return fail(d.breakWith(fmt.Errorf("commit: %w", err)))
	}
	if durable {
		d.durable.Add(1)
	} else {
		d.lazy.Add(1)
	}
	d.ops.Add(int64(kept))
	return true
}

// runOp runs one operation, in a savepoint when it has company.
func (d *DB) runOp(o *op, company bool) bool {
	head := d.chain
	if company {
		if o.err = d.exec("SAVEPOINT op"); o.err != nil {
			return false
		}
	}
	tx := &Tx{d: d}
	o.err = d.note(call(o.fn, tx))
	if o.err != nil {
		d.chain = head
		if company {
			if err := errors.Join(d.exec("ROLLBACK TO op"), d.exec("RELEASE op")); err != nil {
				_ = d.note(err)
			}
		}
		return false
	}
	if company {
		if o.err = d.exec("RELEASE op"); o.err != nil {
			return false
		}
	}
	o.events = tx.events
	return true
}

// call turns a panic of one operation into its error, so that a bug in one
// statement does not end the goroutine that everybody waits for.
func call(fn func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in transaction: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(tx)
}

// note classifies err and remembers one that ends the database's use.
func (d *DB) note(err error) error {
	if err == nil {
		return nil
	}
	err = classify(err)
	if errors.Is(err, store.ErrIO) || errors.Is(err, store.ErrCorrupt) {
		return d.breakWith(err)
	}
	return err
}

func (d *DB) breakWith(err error) error {
	err = classify(err)
	d.broken.CompareAndSwap(nil, &err)
	return err
}

func (d *DB) exec(q string) error {
	s, err := d.stmt(q)
	if err != nil {
		return err
	}
	_, err = s.ExecContext(context.Background())
	return err
}
