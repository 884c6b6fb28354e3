package db

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/mirror"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// Options of an open database.
type Options struct {
	// OnCommit is called, by one goroutine at a time, after events became visible
	// and before the writers are answered; it must not block.
	OnCommit func([]thread.Event)
	// Coalesce is the most operations in one transaction; 0 means 256.
	Coalesce int
	// Connect opens the database at a path; nil means conn.Open. A proof has one
	// whose disk it can cut the power of.
	Connect func(path string) (conn.Conn, error)
	// Guest opens the thread as the external tool does: see the package comment.
	Guest bool
	// Complete makes a database whose events.jsonl knows a newer event a
	// *store.LostCommits.
	Complete bool
}

// DB is one open events.db.
type DB struct {
	dir, name string // the directory, and events.db in it
	uuid      string
	format    int // of our tables; the open transaction may have raised it
	opts      Options

	conn       conn.Conn
	stmts      map[string]*prepared
	batches    int     // of operations since it was opened
	full       bool    // synchronous in force
	read       [2]bool // which of its settings were read back
	chain      chainHead
	erased     tombstones // see DB.tombstones
	erasedRead bool
	out        *mirror.Mirror
	file       unix.Stat_t // what the name meant when we opened it

	queue   queue[*op]
	alone   [1]*op // the batch of runFirst
	ended   sync.Once
	closing error // what closing said
	broken  atomic.Pointer[error]

	durable, lazy, ops atomic.Int64

	memory     atomic.Int64 // of the connection when it was measured last
	unmeasured int          // batches since
	counted    int          // statements kept then
}

type op struct {
	fn       func(*Tx) error
	durable  bool
	view     bool
	alone    func() error // instead of fn: outside of any transaction
	err      error
	events   []thread.Event
	over     bool
	answered chan struct{} // nil: nobody waits
}

// Open opens the thread at dir, adds our tables when another program made it,
// and verifies the tail of the chain. Errors: store.ErrNotFound, ErrFormat,
// ErrCorrupt, ErrReadOnly, ErrIO.
func Open(_ context.Context, dir string, o Options) (*DB, error) {
	path := filepath.Join(dir, "events.db")
	var file unix.Stat_t
	err := unix.Stat(path, &file)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("open %s: %w", dir, store.ErrNotFound)
	} else if err != nil {
		return nil, fmt.Errorf("open thread: %w", err)
	}
	if err := checkWritable(dir); err != nil {
		return nil, err
	}
	if o.Coalesce <= 0 {
		o.Coalesce = 256
	}
	if o.Connect == nil {
		o.Connect = conn.Open
	}
	var line int64
	if o.Complete { // first: a line follows its commit
		line = mirror.Last(dir)
	}
	c, err := o.Connect(path)
	if err != nil {
		return nil, openError(dir, err)
	}
	d := &DB{dir: dir, name: path, opts: o, conn: c, stmts: map[string]*prepared{}, file: file}
	d.out = mirror.New(dir, d.between)
	err = d.prepare()
	if err == nil && line > 0 {
		err = d.checkComplete(line)
	}
	if err != nil {
		return nil, errors.Join(openError(dir, err), d.release())
	}
	return d, nil
}

// prepare sets the connection up, migrates, and checks what is there.
func (d *DB) prepare() error {
	var mode string
	if _, err := d.ask("PRAGMA journal_mode=WAL", nil, &mode); err != nil {
		return fmt.Errorf("set wal mode: %w", err)
	}
	if mode != "wal" {
		return fmt.Errorf("journal mode is %s, not wal: %w", mode, store.ErrIO)
	}
	if err := d.conn.Script("PRAGMA cache_size=" + cacheSize + "; PRAGMA cache_spill=" + spillPages); err != nil {
		return fmt.Errorf("bound the page cache: %w", err)
	}
	if err := d.setSync(true); err != nil || d.opts.Guest {
		return err
	}
	var complete int
	ok, err := d.ask("SELECT uuid, format, (SELECT COUNT(*) FROM sqlite_master WHERE name = 'x_memory') FROM x_meta", nil, &d.uuid, &d.format, &complete)
	if err != nil || !ok || complete == 0 && d.format <= schema.Newest { // of the external tool, a fresh image, or older than the table
		if d.format, err = d.adopt(); err != nil {
			return err
		}
	}
	if d.format > schema.Newest {
		return fmt.Errorf("format %d, this build knows %d: %w", d.format, schema.Newest, store.ErrFormat)
	}
	if err := d.addColumns(); err != nil {
		return err
	}
	return d.verifyTail()
}

// cacheSize is what one database adds to the page cache, in KiB (negative: not in pages). The
// engine has one cache for all databases of a process and reuses the oldest page of any of
// them once the cache is as large as all their sizes together: what counts is the sum. A page
// of 1 KiB takes 2 KiB of memory; a message reads some 20 pages of its thread again and again.
//
// spillPages is from how many pages on a transaction that changes many of them writes some
// into the log before it commits. It has its own bound because a page that is changed after
// that is written twice.
const (
	cacheSize  = "-48"
	spillPages = "200"
)

// checkComplete returns a *store.LostCommits when events.jsonl has a line for an event that
// the database never knew.
func (d *DB) checkComplete(line int64) error {
	var last int64
	const newest = "SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'),0), COALESCE((SELECT MAX(id) FROM events),0))"
	if _, err := d.ask(newest, nil, &last); err != nil {
		return fmt.Errorf("read the newest event id: %w", err)
	}
	if line > last {
		return &store.LostCommits{Line: line, Last: last}
	}
	return nil
}

// setSync sets synchronous. Each setting is read back the first time, because
// engines differ in both their default and what they accept.
func (d *DB) setSync(full bool) error {
	set, want := "PRAGMA synchronous=NORMAL", 1
	if full {
		set, want = "PRAGMA synchronous=FULL", 2
	}
	if err := d.conn.Script(set); err != nil {
		return fmt.Errorf("set synchronous: %w", err)
	}
	d.full = full
	if d.read[want-1] {
		return nil
	}
	var got int
	if _, err := d.ask("PRAGMA synchronous", nil, &got); err != nil {
		return fmt.Errorf("read synchronous: %w", err)
	}
	if got != want {
		return fmt.Errorf("synchronous is %d, want %d: %w", got, want, store.ErrIO)
	}
	d.read[want-1] = true
	return nil
}

// UUID identifies the database permanently.
func (d *DB) UUID() string { return d.uuid }

// Dir is the thread directory.
func (d *DB) Dir() string { return d.dir }

// Broken is the error that ended the database's use, or nil.
func (d *DB) Broken() error {
	if p := d.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// Stats answers the commit counters since open.
func (d *DB) Stats() store.Commits {
	return store.Commits{Durable: d.durable.Load(), Lazy: d.lazy.Load(), Ops: d.ops.Load()}
}

// Memory is about how many bytes the open database takes.
func (d *DB) Memory() int64 { return d.memory.Load() }

// The memory is measured with the first batch of operations, again after measureEvery of them,
// and when so many statements were added as moreStatements: it visits each of them.
const (
	measureEvery   = 64
	moreStatements = 8
)

// measure notes what the connection takes; the holder of the connection calls it.
func (d *DB) measure() {
	d.batches++
	d.unmeasured++
	if d.memory.Load() != 0 && d.unmeasured < measureEvery && len(d.stmts) < d.counted+moreStatements {
		return
	}
	d.closeUnused()
	d.memory.Store(d.conn.Memory())
	d.unmeasured, d.counted = 0, len(d.stmts)
}

// closeUnused closes statements that no batch has used for a while: each takes 3 to 5 KB, and
// some are used once, with the first message of a thread or after its database was opened. What
// is used with every tenth message is not closed in between: a message is about six batches.
func (d *DB) closeUnused() {
	for q, s := range d.stmts {
		if d.batches-s.used > unusedBatches {
			_ = s.Close() // says again what its last use said
			delete(d.stmts, q)
		}
	}
}

const unusedBatches = 128

// Do runs fn in a transaction; durable commits are on disk before it returns.
// An error of fn undoes fn alone. The caller's context bounds the wait for its
// turn only: a transaction that began is never left half done.
func (d *DB) Do(ctx context.Context, durable bool, fn func(*Tx) error) error {
	return d.submit(ctx, &op{fn: fn, durable: durable})
}

// View runs fn on committed data; fn must not write.
func (d *DB) View(ctx context.Context, fn func(*Tx) error) error {
	return d.submit(ctx, &op{fn: fn, view: true})
}

// Close waits for queued operations, checkpoints, and closes.
func (d *DB) Close() error {
	d.queue.close()
	d.ended.Do(func() { d.closing = d.release() })
	return d.closing
}

func (d *DB) release() error {
	for _, s := range d.stmts {
		_ = s.Close()
	}
	d.stmts = nil
	if d.stillThere() != nil {
		_ = d.conn.KeepLog() // closing deletes the WAL by name, and the name may be another's by now
	}
	return errors.Join(d.out.Close(), d.conn.Close())
}

// between reads the events between two ids, for the mirror, in no transaction.
func (d *DB) between(after, before int64, fn func(thread.Event) error) error {
	return (&Tx{d: d}).Events("SELECT "+Columns+" FROM events WHERE id > ? AND id < ? ORDER BY id", []any{after, before}, fn)
}
