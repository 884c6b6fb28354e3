package db

import (
	ctx "context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// hold keeps the connection until release is called, so that operations queue.
func hold(t *testing.T, d *DB) (release func()) {
	t.Helper()
	in, out, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- d.View(ctx.Background(), func(*Tx) error { close(in); <-out; return nil })
	}()
	<-in
	return func() { close(out); must(t, <-done) }
}

// queued starts operations one after the other, each once the one before waits
// in the queue, and answers what waits for their errors.
func queued(t *testing.T, d *DB, durable bool, fns ...func(*Tx) error) func() []error {
	t.Helper()
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	for i, fn := range fns {
		o := &op{fn: fn, durable: durable}
		if free, err := d.queue.enter(o, func() { o.answered = make(chan struct{}) }); free || err != nil {
			t.Fatalf("operation %d does not wait: %v, %v", i, free, err)
		}
		wg.Go(func() { <-o.answered; errs[i] = o.err })
	}
	return func() []error { wg.Wait(); return errs }
}

func TestGroupCommit(t *testing.T) {
	var told []thread.Event
	d := open(t, fresh(t), Options{OnCommit: func(e []thread.Event) { told = append(told, e...) }})
	release := hold(t, d)
	wait := queued(t, d, true, slicesRepeat(insert("x"), 100)...)
	release()
	for _, err := range wait() {
		must(t, err)
	}
	if s := d.Stats(); s != (store.Commits{Durable: 1, Ops: 100}) {
		t.Errorf("100 waiting operations: %+v, want one commit", s)
	}
	must(t, d.Do(t.Context(), false, insert("x")))
	if s := d.Stats(); s != (store.Commits{Durable: 1, Lazy: 1, Ops: 101}) {
		t.Errorf("one more, lazy: %+v", s)
	}
	for i, e := range told {
		if e.ID != int64(i+1) {
			t.Fatalf("told event %d at %d", e.ID, i)
		}
	}
	if len(told) != 101 {
		t.Errorf("told of %d events", len(told))
	}
	if n, err := verify(d); err != nil || n != 101 {
		t.Errorf("chain of %d: %v", n, err)
	}
}

func slicesRepeat(fn func(*Tx) error, n int) []func(*Tx) error {
	out := make([]func(*Tx) error, n)
	for i := range out {
		out[i] = fn
	}
	return out
}

// A failing operation takes nobody with it and leaves nothing.
func TestFailingOperationIsAlone(t *testing.T) {
	boom := errors.New("boom")
	fails := map[string]func(*Tx) error{
		"error":     func(tx *Tx) error { _ = insert("bad")(tx); return boom },
		"panic":     func(tx *Tx) error { _ = insert("bad")(tx); panic("boom") },
		"bad query": func(tx *Tx) error { _ = insert("bad")(tx); _, err := tx.Exec("SELECT nonsense"); return err },
		"panic in rows": func(tx *Tx) error {
			_ = insert("bad")(tx)
			return tx.Each("SELECT 1 UNION SELECT 2", nil, func(func(...any) error) error { panic("boom") })
		},
		"foreign corruption": func(tx *Tx) error { _ = insert("bad")(tx); return store.ErrCorrupt },
	}
	for name, fail := range fails {
		d := open(t, fresh(t), Options{})
		release := hold(t, d)
		wait := queued(t, d, true, insert("1"), fail, insert("2"), fail, insert("3"))
		release()
		for i, err := range wait() {
			if (err != nil) != (i%2 == 1) {
				t.Errorf("%s: operation %d: %v", name, i, err)
			}
		}
		if err := d.Do(t.Context(), true, fail); err == nil {
			t.Errorf("%s, alone: no error", name)
		}
		must(t, d.Do(t.Context(), true, insert("4")))
		if n, err := verify(d); n != 4 || err != nil || count(t, d) != 4 || d.Broken() != nil {
			t.Errorf("%s: %d events, chain %v, broken %v", name, n, err, d.Broken())
		}
		must(t, d.Close())
	}
}

func TestViewKeepsNothing(t *testing.T) {
	d := open(t, fresh(t), Options{})
	must(t, d.View(t.Context(), func(tx *Tx) error { _, err := tx.Exec("INSERT INTO x_ack VALUES('c', 1)"); return err }))
	must(t, d.View(t.Context(), func(tx *Tx) error {
		var id int64
		if found, err := tx.Row("SELECT id FROM x_ack", nil, &id); err != nil || found {
			t.Errorf("found %v, %v", found, err)
		}
		return nil
	}))
}

// P2: what is asked for is what SQLite does, read back inside the transaction.
func TestSynchronous(t *testing.T) {
	d := open(t, fresh(t), Options{})
	for _, durable := range []bool{true, false, false, true, true, false} {
		var got int
		must(t, d.Do(t.Context(), durable, func(tx *Tx) error {
			_, err := tx.Row("PRAGMA synchronous", nil, &got)
			return err
		}))
		if want := map[bool]int{true: 2, false: 1}[durable]; got != want {
			t.Errorf("durable %v: synchronous is %d, want %d", durable, got, want)
		}
	}
	// A lazy operation beside a durable one is as durable.
	release := hold(t, d)
	var got int
	lazy := queued(t, d, false, func(tx *Tx) error { _, err := tx.Row("PRAGMA synchronous", nil, &got); return err })
	full := queued(t, d, true, insert("x"))
	release()
	if lazy()[0] != nil || full()[0] != nil || got != 2 {
		t.Errorf("in company: synchronous is %d", got)
	}
}

func TestManyStatements(t *testing.T) {
	d := open(t, fresh(t), Options{})
	must(t, d.View(t.Context(), func(tx *Tx) error {
		for i := range 2 * maxStmts {
			var n int
			if _, err := tx.Row("SELECT 1"+strings.Repeat(" ", i), nil, &n); err != nil || n != 1 {
				t.Fatalf("statement %d: %d, %v", i, n, err)
			}
		}
		return nil
	}))
	if len(d.stmts) > maxStmts {
		t.Errorf("%d statements kept", len(d.stmts))
	}
}

// A statement that was used once is closed, and what is used now and then is not.
func TestUnusedStatementsAreClosed(t *testing.T) {
	d := open(t, fresh(t), Options{})
	const once, often = "SELECT 1", "SELECT 2"
	view := func(q string) {
		t.Helper()
		must(t, d.View(t.Context(), func(tx *Tx) error {
			var n int
			_, err := tx.Row(q, nil, &n)
			return err
		}))
	}
	view(once)
	view(often)
	first := d.stmts[often].Stmt
	for i := range 2*unusedBatches + measureEvery {
		if i%(unusedBatches/2) == 0 {
			view(often)
		}
		view("SELECT 3")
	}
	if _, ok := d.stmts[once]; ok {
		t.Error("what was used once is kept")
	}
	if s, ok := d.stmts[often]; !ok || s.Stmt != first {
		t.Error("what is used now and then was closed")
	}
	view(once) // compiled again
}

func TestClosed(t *testing.T) {
	d := open(t, fresh(t), Options{})
	release := hold(t, d)
	wait := queued(t, d, true, insert("1"), insert("2"))
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	until(d.queue.isClosed)
	release()
	for _, err := range wait() {
		must(t, err) // what was queued is done
	}
	must(t, <-closed)
	if err := d.Do(t.Context(), true, insert("3")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// A caller may leave while it waits for its turn; then nothing of it is done.
func TestLeftWhileWaiting(t *testing.T) {
	d := open(t, fresh(t), Options{Coalesce: 1})
	release := hold(t, d)
	first := queued(t, d, true, insert("1"))
	gone, cancel := ctx.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- d.Do(gone, true, insert("2")) }()
	until(func() bool { return d.queue.length() == 2 })
	cancel()
	if err := <-left; !errors.Is(err, ctx.Canceled) {
		t.Errorf("cancelled while it waits: %v", err)
	}
	if err := d.Do(gone, true, insert("3")); !errors.Is(err, ctx.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	release()
	must(t, first()[0])
	if n := count(t, d); n != 1 {
		t.Errorf("%d events", n)
	}
}

// A bug in who is told of commits leaves nobody waiting.
func TestWorkerThatLeaves(t *testing.T) {
	d := open(t, fresh(t), Options{OnCommit: func([]thread.Event) { panic("boom") }})
	var later func() []error
	func() {
		defer func() { _ = recover() }()
		_ = d.Do(t.Context(), true, func(tx *Tx) error { later = queued(t, d, true, insert("2")); return insert("1")(tx) })
		t.Error("a panic was lost")
	}()
	if err := later()[0]; !errors.Is(err, errLeft) {
		t.Errorf("behind it: %v", err)
	}
	if err := d.Do(t.Context(), true, insert("3")); !errors.Is(err, errLeft) {
		t.Errorf("after: %v", err)
	}
}

// until waits for a state of the queue.
func until(is func() bool) {
	for !is() {
		runtime.Gosched()
	}
}
