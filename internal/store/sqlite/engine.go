package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Options of an engine.
type Options struct {
	// Path answers the directory of a thread; required.
	Path func(r store.Ref) (string, error)
	// Live answers nil while a token is the current one of a live lease: the
	// fence's first half; required for writes under a lease.
	Live func(resource string, token uint64) error
	// OnCommit is told of events that became visible; it must not block.
	OnCommit func(store.Commit)
	// OnFault is told of a database that broke; it must not block.
	OnFault func(store.Ref, error)
	// MaxOpen is the most databases kept open at rest; 0 means 256.
	MaxOpen int
	// Idle is how long a database stays open at rest; 0 means 60 s.
	Idle time.Duration
}

// Engine is a store.Engine over SQLite.
type Engine struct {
	o Options

	mu      sync.Mutex
	handles map[store.Ref]*handle
	closed  bool
	stats   db.Stats // of databases closed since

	stop chan struct{}
	wg   sync.WaitGroup
}

var _ store.Engine = (*Engine)(nil)

type handle struct {
	ref    store.Ref
	ready  chan struct{} // closed when db or err is set
	db     *db.DB
	err    error
	users  int
	rested time.Time
}

// New makes an engine; Close ends it.
func New(o Options) *Engine {
	if o.MaxOpen <= 0 {
		o.MaxOpen = 256
	}
	if o.Idle <= 0 {
		o.Idle = time.Minute
	}
	e := &Engine{o: o, handles: map[store.Ref]*handle{}, stop: make(chan struct{})}
	e.wg.Add(1)
	go e.janitor()
	return e
}

// Close closes every database; operations under way are finished first.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	close(e.stop)
	var all []*handle
	for r, h := range e.handles {
		all = append(all, h)
		delete(e.handles, r)
	}
	e.mu.Unlock()
	e.wg.Wait()
	var errs []error
	for _, h := range all {
		<-h.ready
		if h.db != nil {
			errs = append(errs, h.db.Close())
		}
	}
	return errors.Join(errs...)
}

// Open answers the number of open databases.
func (e *Engine) Open() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.handles)
}

// Stats sums the commit counters of all databases since the start.
func (e *Engine) Stats() db.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := e.stats
	for _, h := range e.handles {
		select {
		case <-h.ready:
			if h.db != nil {
				sum = addStats(sum, h.db.Stats())
			}
		default:
		}
	}
	return sum
}

func addStats(a, b db.Stats) db.Stats {
	return db.Stats{Durable: a.Durable + b.Durable, Lazy: a.Lazy + b.Lazy, Ops: a.Ops + b.Ops}
}

// get answers an open handle; put gives it back.
func (e *Engine) get(ctx context.Context, r store.Ref) (*handle, error) {
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return nil, store.ErrClosed
		}
		h, ok := e.handles[r]
		if !ok {
			h = &handle{ref: r, ready: make(chan struct{}), users: 1}
			e.handles[r] = h
			e.mu.Unlock()
			e.open(h)
			if h.err != nil {
				return nil, h.err
			}
			return h, nil
		}
		h.users++
		e.mu.Unlock()
		select {
		case <-h.ready:
		case <-ctx.Done():
			e.put(h)
			return nil, ctx.Err()
		}
		switch {
		case h.err != nil: // the opener has removed it
			return nil, h.err
		case h.db.Broken() != nil:
			e.drop(h) // nobody new gets it; the last user closes it
			e.put(h)
		default:
			return h, nil
		}
	}
}

func (e *Engine) open(h *handle) {
	defer close(h.ready)
	path, err := e.o.Path(h.ref)
	if err == nil {
		// Not the caller's context: others may be waiting for this opening.
		h.db, err = db.Open(context.Background(), path, db.Options{OnCommit: e.committed(h.ref)})
	}
	if err != nil {
		h.err = err
		e.drop(h)
		if e.o.OnFault != nil && !errors.Is(err, store.ErrNotFound) {
			e.o.OnFault(h.ref, err)
		}
	}
}

func (e *Engine) committed(r store.Ref) func([]thread.Event) {
	if e.o.OnCommit == nil {
		return nil
	}
	return func(ev []thread.Event) { e.o.OnCommit(store.Commit{Ref: r, Events: ev}) }
}

func (e *Engine) drop(h *handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handles[h.ref] == h {
		delete(e.handles, h.ref)
	}
}

func (e *Engine) put(h *handle) {
	broken := error(nil)
	if h.db != nil {
		broken = h.db.Broken()
	}
	if broken != nil {
		e.drop(h)
		if e.o.OnFault != nil {
			e.o.OnFault(h.ref, broken)
		}
	}
	e.mu.Lock()
	h.users--
	h.rested = time.Now()
	orphan := h.users == 0 && e.handles[h.ref] != h && h.db != nil && !e.closed
	if orphan {
		e.stats = addStats(e.stats, h.db.Stats())
	}
	e.mu.Unlock()
	if orphan {
		_ = h.db.Close() // it broke, or its directory went; there is nothing left to save
	}
}

// Forget closes a thread's database, for a directory that vanished or moved.
func (e *Engine) Forget(match func(store.Ref) bool) {
	e.mu.Lock()
	var rest []*handle
	for r, h := range e.handles {
		if match(r) {
			delete(e.handles, r)
			if h.users == 0 {
				rest = append(rest, h)
				e.stats = addStats(e.stats, h.db.Stats())
			}
		}
	}
	e.mu.Unlock()
	for _, h := range rest {
		_ = h.db.Close() // as in put
	}
}

func (e *Engine) janitor() {
	defer e.wg.Done()
	tick := time.NewTicker(max(e.o.Idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-tick.C:
			for _, h := range e.atRest() {
				_ = h.db.Close() // a failing checkpoint is redone at the next open
			}
		}
	}
}

// atRest takes the handles to close out of the table: those idle for long, and
// the longest idle ones past the bound.
func (e *Engine) atRest() []*handle {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []*handle
	take := func(h *handle) {
		delete(e.handles, h.ref)
		e.stats = addStats(e.stats, h.db.Stats())
		out = append(out, h)
	}
	now := time.Now()
	for _, h := range e.handles {
		if h.users == 0 && now.Sub(h.rested) >= e.o.Idle {
			take(h)
		}
	}
	for len(e.handles) > e.o.MaxOpen {
		var oldest *handle
		for _, h := range e.handles {
			if h.users == 0 && (oldest == nil || h.rested.Before(oldest.rested)) {
				oldest = h
			}
		}
		if oldest == nil {
			break
		}
		take(oldest)
	}
	return out
}

func (e *Engine) do(ctx context.Context, r store.Ref, durable bool, fn func(*db.Tx) error) error {
	h, err := e.get(ctx, r)
	if err != nil {
		return err
	}
	defer e.put(h)
	return h.db.Do(ctx, durable, fn)
}

func (e *Engine) view(ctx context.Context, r store.Ref, fn func(*db.Tx) error) error {
	h, err := e.get(ctx, r)
	if err != nil {
		return err
	}
	defer e.put(h)
	return h.db.View(ctx, fn)
}

// fence refuses a stale token. The live check alone would leave a window up to
// the commit; x_fence closes it, because a newer holder seals this database
// before it reads it, and the two transactions have an order.
func (e *Engine) fence(tx *db.Tx, f store.Fence) error {
	if err := e.o.Live(f.Resource, f.Token); err != nil {
		return fmt.Errorf("%s token %d: %w", f.Resource, f.Token, store.ErrLeaseLost)
	}
	var seen int64
	if _, err := tx.Row("SELECT token FROM x_fence WHERE resource = ?", []any{f.Resource}, &seen); err != nil {
		return err
	}
	switch {
	case uint64(seen) > f.Token:
		return fmt.Errorf("%s token %d, sealed by %d: %w", f.Resource, f.Token, seen, store.ErrLeaseLost)
	case uint64(seen) == f.Token:
		return nil
	}
	_, err := tx.Exec("INSERT INTO x_fence(resource, token) VALUES(?,?) ON CONFLICT(resource) DO UPDATE SET token = excluded.token", f.Resource, int64(f.Token))
	return err
}

// Ensure makes the thread when it is absent.
func (e *Engine) Ensure(ctx context.Context, r store.Ref, tuple string) (bool, error) {
	path, err := e.o.Path(r)
	if err != nil {
		return false, err
	}
	e.mu.Lock()
	_, open := e.handles[r]
	e.mu.Unlock()
	if open {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(path, "events.db")); err == nil {
		return false, nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return false, fmt.Errorf("make thread directory: %w", err)
	}
	created, err := db.Create(path)
	if err != nil || !created || tuple == "" {
		return created, err
	}
	return true, e.do(ctx, r, false, func(tx *db.Tx) error {
		_, err := tx.Exec("UPDATE x_meta SET tuple = ?", tuple)
		return err
	})
}
