// Package pool opens the databases of threads on demand, shares them, and closes them in
// the background when they are idle, take too much memory, or too many are open.
//
//	Do/View --get--> handle (open, counted) ----> db.DB
//	         <-put--
//	janitor: closes idle handles
//
// More than a quarter above a bound there are only databases in use: a caller that
// opens one more closes an idle one first. What a database takes is measured now and then
// while it is used; the bound on bytes is over the sum.
//
// There is at most one connection per database: a new opening waits until the previous
// one is closed, so that the cached chain and the mirror have one owner. A database that
// broke (I/O error, corruption, its directory gone) is closed at its last put and opened
// afresh for the next caller, which then sees what is really on disk.
//
// The state of an inbox is reported when its database is closed; see fileState.
package pool

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Options of a pool.
type Options struct {
	// Path answers the directory of a thread; required.
	Path func(r store.Ref) (string, error)
	// OnCommit receives events that became visible; it must not block.
	OnCommit func(store.Commit)
	// OnFault receives once a database that broke or cannot be opened, not of
	// one that is not there; it must not block.
	OnFault func(store.Ref, error)
	// OnRest gets the state of an inbox that was written once it is closed, if that is
	// known; see fileState. It must not block.
	OnRest   func(agent string, r store.AtRest)
	MaxOpen  int           // idle databases kept open, for their descriptors
	MaxBytes int64         // what those kept open take in memory; 0: no bound
	Idle     time.Duration // how long an idle one stays open
	// Connect is that of db.Options.
	Connect func(path string) (conn.Conn, error)
}

// Pool is the open databases. Safe for concurrent use.
type Pool struct {
	o Options

	mu      sync.Mutex
	handles map[store.Ref]*handle
	leaving map[store.Ref]*handle // taken out, not closed yet; the newest of each
	left    map[*handle]struct{}  // all that were taken out and are not closed yet
	bytes   int64                 // of all that are open, leaving ones too
	closed  bool
	stats   store.Commits // of databases closed since

	stop chan struct{}
	full chan struct{}  // too many are open: the janitor need not wait for its tick
	wg   sync.WaitGroup // the janitor, and handles not closed yet
}

// handle is one opening of a database.
//
//	opening --> open (users >= 0) --> left (no new users) --> closed at 0 users
type handle struct {
	ref    store.Ref
	before *handle       // the opening to wait for
	ready  chan struct{} // closed when db or err is set
	gone   chan struct{} // closed when the database is closed
	db     *db.DB
	err    error
	// nameless: a thread cannot have this name, so no database has failed.
	nameless bool

	users     int // the rest is guarded by Pool.mu
	left      bool
	told      bool
	bytes     int64 // its part of Pool.bytes
	idleSince time.Time
}

// New makes a pool; Close ends it.
func New(o Options) *Pool {
	p := empty(o)
	p.wg.Go(p.janitor)
	return p
}

// Attach replaces what is asked and reported, before the first call.
func (p *Pool) Attach(h store.Hooks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.o.Path, p.o.OnCommit, p.o.OnFault, p.o.OnRest = h.Path, h.OnCommit, h.OnFault, h.OnRest
}

func empty(o Options) *Pool {
	if o.MaxBytes <= 0 {
		o.MaxBytes = math.MaxInt64 / 2
	}
	return &Pool{o: o, handles: map[store.Ref]*handle{}, leaving: map[store.Ref]*handle{}, left: map[*handle]struct{}{}, stop: make(chan struct{}), full: make(chan struct{}, 1)}
}

// Do runs fn in a transaction on r's database; see db.DB.Do.
func (p *Pool) Do(ctx context.Context, r store.Ref, durable bool, fn func(*db.Tx) error) error {
	h, err := p.get(ctx, r)
	if err != nil {
		return err
	}
	defer p.put(h)
	return h.db.Do(ctx, durable, fn)
}

// Scrub removes what was erased from r's files; see db.DB.Scrub.
func (p *Pool) Scrub(ctx context.Context, r store.Ref) error {
	h, err := p.get(ctx, r)
	if err != nil {
		return err
	}
	defer p.put(h)
	return h.db.Scrub(ctx)
}

// View runs fn on r's database; see db.DB.View.
func (p *Pool) View(ctx context.Context, r store.Ref, fn func(*db.Tx) error) error {
	h, err := p.get(ctx, r)
	if err != nil {
		return err
	}
	defer p.put(h)
	return h.db.View(ctx, fn)
}

// Close closes every database; operations under way are finished first.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.stop)
	var unused []*handle
	for _, h := range p.handles {
		if p.leave(h) {
			unused = append(unused, h)
		}
	}
	p.mu.Unlock()
	var errs []error
	for _, h := range unused {
		errs = append(errs, p.end(h))
	}
	p.wg.Wait()
	return errors.Join(errs...)
}

// Open answers the number of open databases.
func (p *Pool) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.handles)
}

// Bytes is about how much memory the open databases take.
func (p *Pool) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// IsOpen reports whether r's database is open or being opened.
func (p *Pool) IsOpen(r store.Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.handles[r]
	return ok
}

// Stats sums the commit counters of all databases since the start. It never
// falls: a database that is just being closed counts too.
func (p *Pool) Stats() store.Commits {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := p.stats
	add := func(h *handle) {
		if h.opened() {
			sum = sum.Plus(h.db.Stats())
		}
	}
	for _, h := range p.handles {
		add(h)
	}
	for h := range p.left {
		add(h)
	}
	return sum
}

// Forget closes databases, for directories that vanish or move.
func (p *Pool) Forget(match func(store.Ref) bool) {
	p.mu.Lock()
	var unused []*handle
	for r, h := range p.handles {
		if match(r) && p.leave(h) {
			unused = append(unused, h)
		}
	}
	p.mu.Unlock()
	for _, h := range unused {
		_ = p.end(h) // its directory may be gone; there is nothing left to save
	}
}

// get answers an open handle; put gives it back.
func (p *Pool) get(ctx context.Context, r store.Ref) (*handle, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, store.ErrClosed
		}
		h, ok := p.handles[r]
		if !ok {
			h = &handle{ref: r, before: p.leaving[r], ready: make(chan struct{}), gone: make(chan struct{})}
			p.handles[r] = h
			p.wg.Add(1)
		}
		h.users++
		p.mu.Unlock()
		if !ok {
			p.help()
			p.open(h)
		}
		select {
		case <-h.ready:
		case <-ctx.Done():
			p.put(h)
			return nil, ctx.Err()
		}
		if h.err == nil && h.db.Broken() == nil {
			return h, nil
		}
		p.put(h)
		if h.err != nil {
			return nil, h.err
		}
	}
}

// open opens the database. Not with the caller's context: others may be waiting
// for this opening.
func (p *Pool) open(h *handle) {
	defer close(h.ready)
	if h.before != nil {
		<-h.before.gone
		h.before = nil
	}
	path, err := p.o.Path(h.ref)
	if err != nil {
		h.err, h.nameless = err, true
		return
	}
	h.db, h.err = db.Open(context.Background(), path, db.Options{OnCommit: p.committed(h.ref), Connect: p.o.Connect, Complete: h.ref.IsInbox()})
}

func (p *Pool) committed(r store.Ref) func([]thread.Event) {
	if p.o.OnCommit == nil {
		return nil
	}
	return func(ev []thread.Event) { p.o.OnCommit(store.Commit{Ref: r, Events: ev}) }
}

// opened reports whether the handle has a database.
func (h *handle) opened() bool {
	select {
	case <-h.ready:
		return h.db != nil
	default:
		return false
	}
}

// fault is what makes the handle useless, or nil.
func (h *handle) fault() error {
	select {
	case <-h.ready:
	default:
		return nil
	}
	if h.err != nil {
		return h.err
	}
	return h.db.Broken()
}

func (p *Pool) put(h *handle) {
	fault := h.fault()
	p.mu.Lock()
	h.users--
	h.idleSince = time.Now()
	tell := fault != nil && !h.nameless && !h.told && p.o.OnFault != nil && !errors.Is(fault, store.ErrNotFound) && !errors.Is(fault, store.ErrNoMemory)
	h.told = h.told || tell
	last := h.left && h.users == 0
	if fault != nil && !h.left {
		last = p.leave(h)
	}
	p.weigh(h)
	over := len(p.handles) > p.o.MaxOpen+p.o.MaxOpen/8 || p.bytes > p.o.MaxBytes+p.o.MaxBytes/8
	p.mu.Unlock()
	if over {
		select {
		case p.full <- struct{}{}:
		default:
		}
	}
	if tell {
		p.o.OnFault(h.ref, fault)
	}
	if last {
		_ = p.end(h) // it broke, or its directory went; there is nothing left to save
	}
}

// weigh counts what the database of a handle takes. Under mu.
func (p *Pool) weigh(h *handle) {
	if h.opened() {
		now := h.db.Memory()
		p.bytes += now - h.bytes
		h.bytes = now
	}
}

// leave takes a handle out of the table and reports whether the caller must end
// it; otherwise its last user does. Under mu.
func (p *Pool) leave(h *handle) bool {
	h.left = true
	delete(p.handles, h.ref)
	p.leaving[h.ref] = h
	p.left[h] = struct{}{}
	return h.users == 0
}

// end closes the database of a handle that left and has no users.
func (p *Pool) end(h *handle) error {
	var err error
	if h.db != nil {
		err = p.closeDB(h)
	}
	p.mu.Lock()
	if h.db != nil {
		p.stats = p.stats.Plus(h.db.Stats())
	}
	p.bytes -= h.bytes
	h.bytes = 0
	delete(p.left, h)
	if p.leaving[h.ref] == h {
		delete(p.leaving, h.ref)
	}
	p.mu.Unlock()
	close(h.gone)
	p.wg.Done()
	return err
}
