package db

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/theclaw/agents/internal/store"
)

// runBatch runs views and groups of writes in the order of the queue.
func (d *DB) runBatch(batch []*op) {
	for i := 0; i < len(batch); {
		if batch[i].view || batch[i].alone != nil {
			d.runView(batch[i])
			i++
			continue
		}
		j := i
		for j < len(batch) && !batch[j].view && batch[j].alone == nil {
			j++
		}
		d.runGroup(batch[i:j])
		i = j
	}
}

// runView runs o in a read transaction: one state for all its queries, whatever
// other programs commit meanwhile, and nothing kept if it writes by mistake.
func (d *DB) runView(o *op) {
	defer o.answer(nil)
	if o.err = d.Broken(); o.err != nil {
		return
	}
	if o.alone != nil {
		o.err = o.alone()
		return
	}
	if o.err = d.exec("BEGIN"); o.err != nil {
		return
	}
	o.err = call(o.fn, &Tx{d: d})
	if err := d.exec("ROLLBACK"); o.err == nil {
		o.err = err
	}
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
		o.answer(nil)
	}
	if !committed {
		return
	}
	// After the answers: the mirror is a convenience, and only who worked waits for it.
	if d.opts.Guest {
		// Guests take turns under the database's lock, or the lines of two would
		// be written twice: each catches up on what it finds missing.
		if err := d.exec("BEGIN IMMEDIATE"); err != nil {
			return // the next append catches up
		}
		defer func() { _ = d.exec("ROLLBACK") }()
	}
	for _, o := range group {
		switch {
		case o.err != nil || len(o.events) == 0:
		case d.opts.Guest:
			d.out.Join(o.events)
		default:
			d.out.Append(o.events)
		}
	}
}

// commitGroup runs the operations in one transaction; false when nothing of
// them is kept.
func (d *DB) commitGroup(group []*op) bool {
	before, format, kept := d.chain, d.format, 0
	fail := func(err error) bool {
		d.chain, d.format, d.erasedRead = before, format, false
		_ = d.exec("ROLLBACK") // no transaction left is what we want
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
	durable := slices.ContainsFunc(group, func(o *op) bool { return o.durable })
	if durable != d.full {
		if err := d.setSync(durable); err != nil {
			return fail(d.note(err))
		}
	}
	if err := d.exec("BEGIN IMMEDIATE"); err != nil {
		return fail(err)
	}
	for _, o := range group {
		if err := d.runOp(o, len(group) > 1); err != nil {
			return fail(err)
		}
		if o.err == nil {
			kept++
		}
	}
	if kept == 0 {
		return fail(nil)
	}
	if err := d.exec("COMMIT"); err != nil {
		if !errors.Is(err, store.ErrDiskFull) && !errors.Is(err, store.ErrBusy) {
			// Never retried: whether the commit is on disk is unknown, and only a
			// fresh look at the file can tell. A full disk refused a write before
			// anything was synced: that commit is undone, and the next may succeed.
			d.breakWith(err)
		}
		return fail(fmt.Errorf("commit: %w", err))
	}
	if durable {
		d.durable.Add(1)
	} else {
		d.lazy.Add(1)
	}
	d.ops.Add(int64(kept))
	return true
}

// runOp runs one operation, in a savepoint when it has company. An error it
// answers ends the whole transaction: SQLite undoes all of it on a full disk or
// an I/O error, and what ran after that would commit on its own.
func (d *DB) runOp(o *op, company bool) error {
	head, format := d.chain, d.format
	if company {
		if err := d.exec("SAVEPOINT op"); err != nil {
			return err
		}
	}
	tx := &Tx{d: d}
	if o.err = call(o.fn, tx); o.err == nil {
		o.err = d.Broken() // an operation cannot overlook it
	}
	if o.err == nil {
		o.events = tx.events
		if company {
			return d.exec("RELEASE op")
		}
		return nil
	}
	d.chain, d.format = head, format
	if !company {
		return nil
	}
	if err := d.exec("ROLLBACK TO op"); err != nil {
		return o.err
	}
	return d.exec("RELEASE op")
}

// call turns a panic of one operation into its error, so that a bug in one
// statement does not undo what others did beside it.
func call(fn func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in transaction: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(tx)
}

func (d *DB) exec(q string) error {
	_, err := d.run(q, nil)
	return err
}
