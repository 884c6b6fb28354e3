package postgres

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/agentlog"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/notify"
	"github.com/theclaw/agents/internal/store/postgres/pool"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Options of an engine.
type Options struct {
	// DSN is the URL of the database.
	DSN string
	// Absent, when set, is notified of a database that does not answer yet; New then waits for
	// it, a minute at most.
	Absent func(error)
	// Live, when set, judges a lease in place of the table lease.
	Live func(resource string, token uint64) error
	// OnCommit is that of store.Hooks, for who attaches none.
	OnCommit func(store.Commit)
	// Logger for what goes on without a call; nil: none.
	Logger *slog.Logger
}

// Engine is a store.Engine over PostgreSQL.
type Engine struct {
	db       *pgxpool.Pool
	probe    *pool.Probe
	unit     *unit.Pool
	onCommit func(store.Commit)
	log      *slog.Logger
	leases   *leases.Table
	lines    *agentlog.Book
	notices  *notify.Bus
}

// New opens the database, and makes its tables where there are none; Close ends it.
func New(ctx context.Context, o Options) (*Engine, error) {
	db, err := pool.Await(ctx, o.DSN, o.Absent)
	if err != nil {
		return nil, err
	}
	e := &Engine{db: db, probe: pool.NewProbe(db), onCommit: o.OnCommit, log: o.Logger}
	if e.onCommit == nil {
		e.onCommit = func(store.Commit) {}
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.unit = unit.New(unit.Options{Pool: db, Live: o.Live, OnCommit: func(c store.Commit) { e.onCommit(c) }})
	return e, nil
}

// Close ends the connections; operations under way are finished first.
func (e *Engine) Close() error {
	e.unit.Close()
	e.probe.Close()
	e.db.Close()
	return nil
}

// Pool is the connections to the database, for tables that belong to no thread.
func (e *Engine) Pool() *pgxpool.Pool { return e.db }

// Able answers nil when the database can be worked with.
func (e *Engine) Able(ctx context.Context) error { return e.probe.Able(ctx) }

func (e *Engine) do(ctx context.Context, r store.Ref, s unit.Step) error {
	return e.unit.Do(ctx, r, nil, s)
}

func (e *Engine) fenced(ctx context.Context, r store.Ref, f store.Fence, s unit.Step) error {
	return e.unit.Do(ctx, r, &f, s)
}

func (e *Engine) view(ctx context.Context, r store.Ref, s unit.Step) error {
	return e.unit.View(ctx, r, s)
}

// VerifyChain checks every event of a thread and answers their number; the first that
// does not match is named in the error (store.ErrCorrupt).
func (e *Engine) VerifyChain(ctx context.Context, r store.Ref) (int64, error) {
	s := &unit.VerifyStep{}
	err := e.view(ctx, r, s)
	return s.Out, err
}

// Seal writes the fence's token into the inbox.
func (e *Engine) Seal(ctx context.Context, agent string, f store.Fence) error {
	return e.fenced(ctx, store.Inbox(agent), f, nothing{})
}

// Ensure makes the thread when it is absent; store.ErrNotFound when its agent is.
func (e *Engine) Ensure(ctx context.Context, r store.Ref, tuple string) (made bool, err error) {
	return e.unit.Make(ctx, r, tuple)
}

// Tuple answers whom a thread was made for.
func (e *Engine) Tuple(ctx context.Context, r store.Ref) (string, error) {
	s := &row{}
	err := e.view(ctx, r, s)
	return s.Tuple, err
}

// nothing is the step that is only its fence.
type nothing struct{}

func (nothing) Load(*unit.Tx)                          {}
func (nothing) Decide(context.Context, *unit.Tx) error { return nil }

// row answers the thread's row.
type row struct {
	nothing
	unit.Thread
}

func (r *row) Decide(_ context.Context, tx *unit.Tx) error {
	r.Thread = tx.Thread
	return nil
}

// absent answers whether err tells only that a thread is not there.
func absent(err error) bool { return errors.Is(err, store.ErrNotFound) }
