package postgres

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/shard"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Options of an engine.
type Options struct {
	// DSNs are the URLs of the databases; agents are spread over them by their ids.
	DSNs []string
	// Absent, when set, is told of a database that does not answer yet; New then waits for
	// it, a minute at most.
	Absent func(error)
	// Live, when set, judges a lease in place of the table lease.
	Live func(resource string, token uint64) error
	// OnCommit is told of events that became visible through this engine; it must not
	// block.
	OnCommit func(store.Commit)
}

// Engine is a store.Engine over PostgreSQL.
type Engine struct {
	shards *shard.Set
	units  []*unit.Pool // in the order of the shards
}

// New opens the databases, and makes their tables where there are none; Close ends it.
func New(ctx context.Context, o Options) (*Engine, error) {
	s, err := shard.Await(ctx, o.DSNs, o.Absent)
	if err != nil {
		return nil, err
	}
	e := &Engine{shards: s}
	for _, p := range s.All() {
		e.units = append(e.units, unit.New(unit.Options{Pool: p, Live: o.Live, OnCommit: o.OnCommit}))
	}
	return e, nil
}

// Close ends the connections; operations under way are finished first.
func (e *Engine) Close() error {
	for _, u := range e.units {
		u.Close()
	}
	e.shards.Close()
	return nil
}

// Shards are the databases, for tables that belong to no thread.
func (e *Engine) Shards() *shard.Set { return e.shards }

// at does something in the database of an agent (shard.Set.On).
func (e *Engine) at(ctx context.Context, agent string, do func(*unit.Pool) error) error {
	return e.shards.At(ctx, agent, func(i int) error { return do(e.units[i]) })
}

func (e *Engine) do(ctx context.Context, r store.Ref, s unit.Step) error {
	return e.at(ctx, r.Agent, func(u *unit.Pool) error { return u.Do(ctx, r, nil, s) })
}

func (e *Engine) fenced(ctx context.Context, r store.Ref, f store.Fence, s unit.Step) error {
	return e.at(ctx, r.Agent, func(u *unit.Pool) error { return u.Do(ctx, r, &f, s) })
}

func (e *Engine) view(ctx context.Context, r store.Ref, s unit.Step) error {
	return e.at(ctx, r.Agent, func(u *unit.Pool) error { return u.View(ctx, r, s) })
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
	err = e.at(ctx, r.Agent, func(u *unit.Pool) (err error) {
		made, err = u.Make(ctx, r, tuple)
		return err
	})
	return made, err
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
