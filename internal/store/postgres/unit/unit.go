// Package unit owns one transaction on one thread: its two trips to the server, the
// fence, the ids and the hash chain of the events it appends, the bytes of texts, and
// what an error of the server means.
//
//	Load (queues reads) --trip 1--> Decide (queues writes) --trip 2--> committed
//	                                   |
//	                                   +-- error: ROLLBACK, nothing has changed
//
// A read that could not be foreseen costs a trip of its own (Tx.Now). Ids are given
// here, from the thread's row, which the transaction holds locked; so a write never
// waits for an answer. The package knows no turn and no delivery.
//
// READ COMMITTED is enough, because a step decides on nothing but rows of its own
// thread, and who writes those holds the lock on the thread's row. Every statement
// behind that lock takes its snapshot after the lock was got, so it sees all that the
// holder before has committed: there is no write skew to prevent. The fence is the one
// row read from outside: FOR SHARE, so that who takes the lease over waits for the
// commit, and then compared with the greatest token the thread has seen. No transaction
// locks two threads, so none waits in a circle.
package unit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
)

// Step is what one method of the contract does in a transaction. Its results are in
// its own fields. It is used for one transaction.
type Step interface {
	// Load queues what the step reads.
	Load(tx *Tx)
	// Decide has what was read, and queues what is to be written. In a View it puts
	// the answer together and may neither read nor write.
	Decide(ctx context.Context, tx *Tx) error
}

// Lazy is a step whose commit waits for no disk: a crash of the server may take it, and
// then it is done again with the same outcome. Whatever waits for the disk later keeps
// it too, because the log of a server has one order.
type Lazy interface{ Lazy() bool }

// Options of a pool.
type Options struct {
	Pool *pgxpool.Pool
	// Live answers nil while a token is the current one of a live lease. Nil means
	// the table lease, which the transaction looks into: what every registry does.
	Live func(resource string, token uint64) error
	// OnCommit is told of events that became visible; it must not block.
	OnCommit func(store.Commit)
}

// Pool makes transactions.
type Pool struct {
	o      Options
	line   line
	closed atomic.Bool
}

// New makes a pool over o.Pool, which stays the caller's.
func New(o Options) *Pool { return &Pool{o: o} }

// Close refuses what comes after it with store.ErrClosed.
func (p *Pool) Close() { p.closed.Store(true) }

// tries is how often a transaction is begun that found its connection dead.
const tries = 3

// rollbackPatience is how long a transaction that failed is waited for.
const rollbackPatience = 5 * time.Second

// Do runs a step in a transaction. A nil fence is a write without a lease. Errors:
// store.ErrNotFound, ErrLeaseLost, ErrIO, ErrClosed, and what the step answers; then
// nothing has changed, except that after ErrIO it may have: a COMMIT whose answer is
// lost. That one is the caller's to repeat, who has the key of the event; what is
// repeated here is only what found its connection dead before anything was read.
func (p *Pool) Do(ctx context.Context, r store.Ref, f *store.Fence, s Step) error {
	return p.write(ctx, r, func(t *Tx) error {
		if f != nil {
			t.Fence = *f
		}
		return p.step(ctx, t, f, s)
	})
}

// Alone is Do without a lease for what must not happen beside a step under one: it
// waits for those under way, and later ones see what it did. Like a fence it locks
// the lease before the thread, or the two would wait for each other.
func (p *Pool) Alone(ctx context.Context, r store.Ref, resource string, s Step) error {
	return p.write(ctx, r, func(t *Tx) error {
		t.alone = resource
		return p.step(ctx, t, nil, s)
	})
}

// View reads a thread in one trip, all of it as of one instant. Errors:
// store.ErrNotFound, ErrIO, ErrClosed, and what the step answers.
func (p *Pool) View(ctx context.Context, r store.Ref, s Step) error {
	return p.on(ctx, r, func(t *Tx) error {
		found := false
		t.reads.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		t.row("", false, &found)
		s.Load(t)
		t.reads.Queue("COMMIT")
		if err := t.conn.SendBatch(ctx, &t.reads).Close(); err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("read %s: %w", r, store.ErrNotFound)
		}
		t.conn = nil // the transaction has ended
		return s.Decide(ctx, t)
	})
}

// Peek is Do as far as the step writes nothing: as of one instant, in one trip, and
// without a lock. False when it would write: then it has come to nothing, and is to be
// made again and done. Errors are those of Do.
func (p *Pool) Peek(ctx context.Context, r store.Ref, f store.Fence, s Step) (done bool, err error) {
	err = p.on(ctx, r, func(t *Tx) error {
		t.Fence = f
		var seen seen
		t.reads.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		p.load(t, &f, &seen, "", false)
		s.Load(t)
		t.reads.Queue("COMMIT")
		if err := t.conn.SendBatch(ctx, &t.reads).Close(); err != nil {
			return err
		}
		if err := p.judge(t, &f, seen); err != nil {
			return err
		}
		if err := s.Decide(ctx, t); err != nil {
			return err
		}
		done, t.events = !t.writes(), nil
		return nil
	})
	return done && err == nil, err
}

// write is on for those that lock the thread.
func (p *Pool) write(ctx context.Context, r store.Ref, fn func(*Tx) error) error {
	leave, err := p.line.enter(ctx, r)
	if err != nil {
		return err
	}
	defer leave()
	return p.on(ctx, r, fn)
}

// on gives fn a connection, and another one when it was dead.
func (p *Pool) on(ctx context.Context, r store.Ref, fn func(*Tx) error) error {
	for try := 1; ; try++ {
		t, err := p.once(ctx, r, fn)
		if err == nil {
			if len(t.events) > 0 && p.o.OnCommit != nil {
				p.o.OnCommit(store.Commit{Ref: r, Events: t.events, Holder: t.holder})
			}
			return nil
		}
		if try == tries || t == nil || t.began || !errors.Is(err, store.ErrIO) {
			return err
		}
		p.o.Pool.Reset() // the server has ended: the others are dead as well
	}
}

func (p *Pool) once(ctx context.Context, r store.Ref, fn func(*Tx) error) (*Tx, error) {
	if p.closed.Load() {
		return nil, store.ErrClosed
	}
	c, err := p.o.Pool.Acquire(ctx)
	if err != nil {
		if p.closed.Load() {
			return nil, store.ErrClosed
		}
		return nil, problem(ctx, err, true)
	}
	defer c.Release()
	t := &Tx{Ref: r, Time: time.Now(), conn: c}
	if err := fn(t); err != nil {
		dead := c.Conn().IsClosed()
		if !dead {
			// A connection that is in doubt is closed, which rolls back as well.
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
			defer cancel()
			if _, again := c.Exec(back, "ROLLBACK"); again != nil {
				_ = c.Conn().Close(back)
			}
		}
		return t, problem(ctx, err, dead)
	}
	return t, nil
}

func (p *Pool) step(ctx context.Context, t *Tx, f *store.Fence, s Step) error {
	lazy, ok := s.(Lazy)
	var seen seen
	t.reads.Queue("BEGIN")
	p.load(t, f, &seen, " FOR NO KEY UPDATE", ok && lazy.Lazy()) // who only refers to the thread does not wait
	s.Load(t)
	if err := t.conn.SendBatch(ctx, &t.reads).Close(); err != nil {
		return err
	}
	t.began = true
	if err := p.judge(t, f, seen); err != nil {
		return err
	}
	if err := s.Decide(ctx, t); err != nil {
		return err
	}
	return t.apply(ctx)
}

// seen is what a transaction reads for itself.
type seen struct {
	live, found bool
	sealed      int64
}

const (
	// Leased finds the lease of an agent ($1), resource ($2) and token ($3) while it is
	// held. With FOR SHARE behind it a takeover waits for the commit.
	Leased = "SELECT 1 FROM lease WHERE agent_id = $1 AND resource = $2 AND token = $3 AND NOT released AND expires_at > clock_timestamp()"
	lazily = "set_config('synchronous_commit', 'off', true)"
)

// load queues the reads of the fence and the thread's row, which lock when there is one.
func (p *Pool) load(t *Tx, f *store.Fence, s *seen, lock string, lazy bool) {
	s.live = f == nil || p.o.Live != nil
	if !s.live {
		sql := Leased
		if lazy {
			sql, lazy = sql+" AND "+lazily+" = 'off'", false
		}
		if lock != "" {
			sql += " FOR SHARE"
		}
		t.reads.Queue(sql, t.Agent, f.Resource, int64(f.Token)).Query(func(rows pgx.Rows) error {
			return t.each(rows, func(func(...any) error) error { s.live = true; return nil })
		})
	}
	if lazy {
		t.reads.Queue("SELECT " + lazily)
	}
	if t.alone != "" {
		t.reads.Queue("SELECT 1 FROM lease WHERE agent_id = $1 AND resource = $2 FOR UPDATE", t.Agent, t.alone)
	}
	t.row(lock, f == nil && lock != "" && t.IsInbox(), &s.found)
	if f != nil {
		t.One("SELECT token FROM fence WHERE agent_id = $1 AND thread_id = $2 AND resource = $3", []any{f.Resource}, nil, &s.sealed)
	}
}

// judge refuses what has no thread, or a fence that does not hold.
func (p *Pool) judge(t *Tx, f *store.Fence, s seen) error {
	if !s.found {
		return fmt.Errorf("write %s: %w", t.Ref, store.ErrNotFound)
	}
	if f != nil {
		if err := p.fence(t, *f, s.live, uint64(s.sealed)); err != nil {
			return err
		}
	}
	t.before, t.Time = t.Thread, time.Now() // the lock may have been waited for
	return nil
}

func (p *Pool) fence(t *Tx, f store.Fence, live bool, sealed uint64) error {
	if p.o.Live != nil {
		live = p.o.Live(f.Resource, f.Token) == nil
	}
	switch {
	case !live:
		return fmt.Errorf("%s token %d: %w", f.Resource, f.Token, store.ErrLeaseLost)
	case sealed > f.Token:
		return fmt.Errorf("%s token %d, sealed by %d: %w", f.Resource, f.Token, sealed, store.ErrLeaseLost)
	case sealed < f.Token:
		t.Exec(`INSERT INTO fence(agent_id, thread_id, resource, token) VALUES($1,$2,$3,$4)
			ON CONFLICT (agent_id, thread_id, resource) DO UPDATE SET token = excluded.token`, f.Resource, int64(f.Token))
	}
	return nil
}
