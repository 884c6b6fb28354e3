// Package unit runs one transaction on one thread in two trips to the server. It checks the
// fence, assigns the ids and the hash chain of the events it appends, encodes texts, and
// maps errors of the server to those of the storage contract.
//
//	Load (queues reads) --trip 1--> Decide (queues writes) --trip 2--> committed
//	                                   |
//	                                   +-- error: ROLLBACK, nothing has changed
//
// A read that could not be foreseen costs a trip of its own (Tx.Now). Ids are assigned
// here, from the thread's row, which the transaction holds locked; so a write never
// waits for an answer. The package knows no turn and no delivery.
//
// READ COMMITTED is enough, because a step decides on nothing but rows of the threads it
// has locked, and who writes those holds the lock on their thread's row. Every statement
// behind that lock takes its snapshot after the lock was got, so it sees all that the
// holder before has committed: there is no write skew to prevent. The fence is the one
// row read from outside: FOR SHARE, so that who takes the lease over waits for the
// commit, and then compared with the greatest token the thread has seen. Locks are taken
// in one order, so none waits in a circle: the lease, a conversation, and then, by the
// step that ends a turn (Joint), the inbox of the same agent.
package unit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/lease"
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

// Joint is a step of two threads of one agent: what it does in both is one transaction.
// The second is locked after the first, and nobody locks them the other way round.
type Joint interface{ Joint() (thread string) }

// Options of a pool.
type Options struct {
	Pool *pgxpool.Pool
	// Live answers nil while a token is the current one of a live lease. Nil means
	// the table lease, which the transaction looks into: what every registry does.
	Live func(resource string, token uint64) error
	// OnCommit receives events that became visible; it must not block.
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
	if j, ok := s.(Joint); ok {
		leave, err := p.line.enter(ctx, store.Ref{Agent: r.Agent, Thread: j.Joint()})
		if err != nil {
			return err
		}
		defer leave()
	}
	return p.write(ctx, r, func(t *Tx) error {
		if f != nil {
			t.Fence = *f
		}
		return p.step(ctx, t, f, s)
	})
}

// Alone is Do without a lease for what must not happen at the same time as a step under one: it
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
		t.reads.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		var seen seen
		p.load(t, nil, &seen, "", false)
		s.Load(t)
		t.reads.Queue("COMMIT")
		if err := t.conn.SendBatch(ctx, t.reads).Close(); err != nil {
			return err
		}
		if !seen.found {
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
		if err := t.conn.SendBatch(ctx, t.reads).Close(); err != nil {
			return err
		}
		if err := p.judge(ctx, t, &f, seen); err != nil {
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
	t := &Tx{Ref: r, Time: time.Now(), conn: c, live: p.o.Live, reads: &pgx.Batch{}, write: &pgx.Batch{}}
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
	p.load(t, f, &seen, " FOR NO KEY UPDATE OF t", ok && lazy.Lazy()) // who only refers to the thread does not wait
	if j, ok := s.(Joint); ok {
		t.join(j.Joint(), &seen)
	}
	s.Load(t)
	if err := t.conn.SendBatch(ctx, t.reads).Close(); err != nil {
		return err
	}
	t.began = true
	if err := p.judge(ctx, t, f, seen); err != nil {
		return err
	}
	if err := s.Decide(ctx, t); err != nil {
		return err
	}
	return t.apply(ctx)
}

// seen is what a transaction reads for itself.
type seen struct {
	found  bool  // the thread, and the lease of the fence where that is looked for
	beside bool  // the thread that the step is Joint with
	sealed int64 // greatest token that has written the thread under the resource of the fence
}

const (
	// Leased finds the lease of an agent ($1), resource ($2) and token ($3) while it is
	// held. With FOR SHARE behind it a takeover waits for the commit.
	Leased  = ofLease + "$2 AND token = $3"
	leased  = ofLease + "$3 AND token = $4" // where $2 is the thread
	ofLease = "SELECT 1 FROM lease WHERE agent_id = $1 AND NOT released AND expires_at > clock_timestamp() AND resource = "
	// LeasedNow is Leased, locked until the commit: a takeover waits for it.
	LeasedNow = Leased + " FOR SHARE"
	lazily    = "set_config('synchronous_commit', 'off', true)"
	// holder is who has the lease of an inbox's agent.
	holder = `COALESCE((SELECT l.holder FROM lease l WHERE l.agent_id = $1 AND l.resource = 'agent/' || $1 AND NOT l.released AND l.expires_at > clock_timestamp()), '')`
	// sealed may be of before the thread's lock was waited for. Nobody has sealed it with
	// a greater token meanwhile: he would have had the lease, which was locked first.
	sealed = "COALESCE((SELECT f.token FROM fence f WHERE f.agent_id = $1 AND f.thread_id = $2 AND f.resource = $3), 0)"
)

// LeaseRow is the agent_id of the row of a lease: the agent, and for a lease that is of no agent the resource,
// which is no agent's name.
func LeaseRow(resource string) string {
	if id := lease.AgentOf(resource); id != "" {
		return id
	}
	return resource
}

// LeaseArgs are the arguments of [Leased] and [LeasedNow].
func LeaseArgs(f store.Fence) []any { return []any{LeaseRow(f.Resource), f.Resource, int64(f.Token)} }

// load queues the read of the thread's row, and of what a fence must find with it, in one
// statement: the lease is locked before the thread.
func (p *Pool) load(t *Tx, f *store.Fence, s *seen, lock string, lazy bool) {
	who, seal, from, args := "''", "0::bigint", " FROM ", []any(nil)
	if f == nil && lock != "" && t.IsInbox() {
		who = holder
	}
	if f != nil {
		seal, args = sealed, append(args, f.Resource)
	}
	if f != nil && p.o.Live == nil {
		args, from = append(args, int64(f.Token)), from+"("+leased
		if lazy {
			from, lazy = from+" AND "+lazily+" = 'off'", false
		}
		if lock != "" {
			from += " FOR SHARE"
		}
		from += ") held, "
	}
	if lazy {
		t.reads.Queue("SELECT " + lazily)
	}
	if t.alone != "" {
		t.reads.Queue("SELECT 1 FROM lease WHERE agent_id = $1 AND resource = $2 FOR UPDATE", t.Agent, t.alone)
	}
	const where = "thread t WHERE agent_id = $1 AND thread_id = $2"
	t.One("SELECT "+ofThread+", "+who+", "+seal+from+where+lock, args, &s.found, append(t.row(), &t.holder, &s.sealed)...)
}

// judge refuses what has no thread, or a fence that does not hold.
func (p *Pool) judge(ctx context.Context, t *Tx, f *store.Fence, s seen) error {
	if !s.found {
		there := false
		if f != nil && p.o.Live == nil {
			if err := t.Now(ctx, "SELECT 1 FROM thread WHERE agent_id = $1 AND thread_id = $2", nil, func(func(...any) error) error { there = true; return nil }); err != nil {
				return err
			}
		}
		if !there {
			return fmt.Errorf("write %s: %w", t.Ref, store.ErrNotFound)
		}
		return Lost(*f)
	}
	if f != nil {
		if err := p.fence(t, *f, uint64(s.sealed)); err != nil {
			return err
		}
	}
	t.before, t.Time = t.Thread, time.Now() // the lock may have been waited for
	if b := t.beside; b != nil {
		if !s.beside {
			return fmt.Errorf("write %s: %w", b.Ref, store.ErrNotFound)
		}
		b.before, b.Time = b.Thread, t.Time
	}
	return nil
}

// Lost is the error of a write whose lease is no longer current.
func Lost(f store.Fence) error {
	return fmt.Errorf("%s token %d: %w", f.Resource, f.Token, store.ErrLeaseLost)
}

func (p *Pool) fence(t *Tx, f store.Fence, sealed uint64) error {
	switch {
	case p.o.Live != nil && p.o.Live(f.Resource, f.Token) != nil:
		return Lost(f)
	case sealed > f.Token:
		return fmt.Errorf("%s token %d, sealed by %d: %w", f.Resource, f.Token, sealed, store.ErrLeaseLost)
	case sealed < f.Token:
		t.Exec(`INSERT INTO fence(agent_id, thread_id, resource, token) VALUES($1,$2,$3,$4)
			ON CONFLICT (agent_id, thread_id, resource) DO UPDATE SET token = excluded.token`, f.Resource, int64(f.Token))
	}
	return nil
}
