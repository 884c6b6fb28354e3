package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/internal/store/sqlite/pool"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// Options of an engine. The functions may be attached later (Engine.Attach).
type Options struct {
	// Home is the path of registry.db, with what is kept outside of threads.
	Home string
	// Path answers the directory of a thread; required.
	Path func(r store.Ref) (string, error)
	// Live answers nil while a token is the current one of a live lease: the
	// fence's first half; required for writes under a lease.
	Live func(resource string, token uint64) error
	// OnCommit receives events that became visible; it must not block.
	OnCommit func(store.Commit)
	// OnFault receives once a database that broke or cannot be opened, not of
	// one that is not there; it must not block.
	OnFault func(store.Ref, error)
	// OnRest receives what an inbox that was written looks like once it is closed; it
	// must not block.
	OnRest func(agent string, r store.AtRest)
	// MaxOpen is the most databases kept open at rest; 0 means the constant MaxOpen.
	MaxOpen int
	// MaxBytes is the most memory of databases kept open at rest; 0 means the constant MaxBytes.
	MaxBytes int64
	// Idle is how long a database stays open at rest; 0 means 30 s.
	Idle time.Duration
	// Connect opens a database; nil means conn.Open. See db.Options.
	Connect func(path string) (conn.Conn, error)
}

// MaxOpen is how many databases an engine keeps open at rest by default, which bounds their
// descriptors, and MaxBytes how much memory they take. A thread that is in use takes some
// 265 KB, so 230 of them stay open: conversations that take turns in a smaller cache would
// each find their database closed, and opening it costs as much as the turn.
const (
	MaxOpen  = 256
	MaxBytes = 58 << 20
)

// Engine is a store.Engine over SQLite.
type Engine struct {
	o    Options
	pool *pool.Pool
	// media is held for writing while media are removed, and for reading from the name of a file to its row.
	media sync.RWMutex
}

var _ store.Engine = (*Engine)(nil)

// New makes an engine; Close ends it.
func New(o Options) *Engine {
	if o.MaxOpen <= 0 {
		o.MaxOpen = MaxOpen
	}
	if o.Idle <= 0 {
		o.Idle = 30 * time.Second
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = MaxBytes
	}
	return &Engine{o: o, pool: pool.New(pool.Options{Path: o.Path, OnCommit: o.OnCommit, OnFault: o.OnFault, OnRest: o.OnRest, MaxOpen: o.MaxOpen, MaxBytes: o.MaxBytes, Idle: o.Idle, Connect: o.Connect})}
}

// Attach replaces the functions of the options, before the first call.
func (e *Engine) Attach(h store.Hooks) {
	e.o.Path, e.o.Live = h.Path, h.Live
	e.pool.Attach(h)
}

// Home opens what is kept outside of threads; the caller closes it. The home's lock is held.
func (e *Engine) Home(ctx context.Context) (store.Home, error) {
	d, err := homedb.Open(ctx, e.o.Home)
	if err != nil {
		return nil, err
	}
	d.Live = e.live
	return d, nil
}

// MakeInbox makes the inbox of a new agent in its directory.
func (e *Engine) MakeInbox(dir string) error {
	_, err := db.Make(filepath.Join(dir, thread.Inbox), schema.Prepare)
	return err
}

// Close closes every database; operations under way are finished first.
func (e *Engine) Close() error { return e.pool.Close() }

// Open answers the number of open databases.
func (e *Engine) Open() int { return e.pool.Open() }

// Bytes is about how much memory the open databases take.
func (e *Engine) Bytes() int64 { return e.pool.Bytes() }

// Trim returns memory of closed databases to the system, those of all engines of the process.
func Trim() error { return conn.Trim() }

// Stats sums the commit counters of all databases since the start.
func (e *Engine) Stats() store.Commits { return e.pool.Stats() }

// IsOpen reports whether a thread's database is open.
func (e *Engine) IsOpen(r store.Ref) bool { return e.pool.IsOpen(r) }

// Forget closes databases, for directories that vanish or move.
func (e *Engine) Forget(match func(store.Ref) bool) { e.pool.Forget(match) }

// VerifyChain checks every chained event of a thread and answers their number;
// the first that does not match is named in the error (store.ErrCorrupt).
func (e *Engine) VerifyChain(ctx context.Context, r store.Ref) (int64, error) {
	return view(ctx, e, r, (*db.Tx).VerifyChain)
}

func (e *Engine) do(ctx context.Context, r store.Ref, durable bool, fn func(*db.Tx) error) error {
	return e.pool.Do(ctx, r, durable, fn)
}

// fenced is do under a lease: the fence is checked in the same transaction.
func (e *Engine) fenced(ctx context.Context, r store.Ref, f store.Fence, durable bool, fn func(*db.Tx) error) error {
	return e.do(ctx, r, durable, func(tx *db.Tx) error {
		if err := e.fence(tx, f); err != nil {
			return err
		}
		return fn(tx)
	})
}

// Seal writes the fence's token into the inbox.
func (e *Engine) Seal(ctx context.Context, agent string, f store.Fence) error {
	return e.fenced(ctx, store.Inbox(agent), f, false, func(*db.Tx) error { return nil })
}

func view[T any](ctx context.Context, e *Engine, r store.Ref, fn func(*db.Tx) (T, error)) (T, error) {
	var out T
	err := e.pool.View(ctx, r, func(tx *db.Tx) error {
		var err error
		out, err = fn(tx)
		return err
	})
	return out, err
}

// fence refuses a stale token. The live check alone would leave a window up to
// the commit; x_fence closes it, because a newer holder seals this database
// before it reads it, and the two transactions have an order.
func (e *Engine) fence(tx *db.Tx, f store.Fence) error {
	if err := e.live(f); err != nil {
		return err
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

// live refuses a token that is not the current one of a live lease.
func (e *Engine) live(f store.Fence) error {
	if e.o.Live(f.Resource, f.Token) != nil {
		return fmt.Errorf("%s token %d: %w", f.Resource, f.Token, store.ErrLeaseLost)
	}
	return nil
}

// Ensure makes the thread when it is absent.
func (e *Engine) Ensure(ctx context.Context, r store.Ref, tuple string) (bool, error) {
	if e.pool.IsOpen(r) {
		return false, nil // each operation on it looks whether it is still there
	}
	path, err := e.o.Path(r)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(path, "events.db")); err == nil {
		return false, nil
	}
	if err := makeDir(path); err != nil {
		return false, fmt.Errorf("make thread directory: %w", db.FileError(err))
	}
	created, err := db.Make(path, schema.Make)
	if err != nil || !created || tuple == "" {
		return created, err
	}
	return true, e.do(ctx, r, false, func(tx *db.Tx) error {
		_, err := tx.Exec("UPDATE x_meta SET tuple = ?", tuple)
		return err
	})
}

// makeDir makes a directory and its parents, each on disk: a thread that is
// durable in a directory that a power cut takes away is not durable.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(path)); err != nil {
			return err
		}
		if err = os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return schema.SyncDir(filepath.Dir(path))
}
