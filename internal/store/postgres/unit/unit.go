// Package unit owns one transaction on one thread: its two trips to the server, the
// fence, the ids and the hash chain of the events it appends, and what an error of
// the server means.
//
//	Load(queue reads) --trip 1--> decide --> Exec, Insert (queued) --trip 2--> committed
//	                                 |
//	                                 +-- error: ROLLBACK, nothing has changed
//
// A read that could not be foreseen costs a trip of its own (Tx.Now). Ids are given
// here, from the thread's row, which the transaction holds locked; so a write never
// waits for an answer. The package knows no turn and no delivery.
package unit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

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
type Pool struct{ o Options }

// New makes a pool over o.Pool, which stays the caller's.
func New(o Options) *Pool { return &Pool{o} }

// Thread is the row that a transaction holds.
type Thread struct {
	UUID, Tuple, Desired string
	Head                 int64
	Acked                int64 // of our own consumer
	LastAt               string
	chain                []byte
}

// Started is what Desired says while the agent of an inbox shall work.
const Started = "started"

// due tells of an inbox that its agent has something to do.
func (t Thread) due() bool { return t.Desired == Started && t.Head > t.Acked }

// Tx is a thread as a step sees it.
type Tx struct {
	store.Ref
	Thread // as read; Head moves with Insert
	Fence  store.Fence
	Time   time.Time // of the whole step

	conn   *pgxpool.Conn
	alone  string // resource whose lease nobody may use meanwhile
	reads  pgx.Batch
	write  pgx.Batch
	events []thread.Event
	before Thread
}

// Read queues a read for the first trip; each is called for every row, in order.
// The SQL's $1 and $2 are the agent and the thread, args follow from $3.
func (t *Tx) Read(sql string, args []any, each func(scan func(...any) error) error) {
	t.reads.Queue(sql, t.bind(args)...).Query(func(rows pgx.Rows) error { return rowsEach(rows, each) })
}

// One queues a read of at most one row into dest; found, when not nil, tells
// whether there was one.
func (t *Tx) One(sql string, args []any, found *bool, dest ...any) {
	t.Read(sql, args, func(scan func(...any) error) error {
		if found != nil {
			*found = true
		}
		return scan(dest...)
	})
}

// Now reads at once, in a trip of its own: for what a step learns it needs while it
// decides. It sees what the step has queued only after Flush.
func (t *Tx) Now(ctx context.Context, sql string, args []any, each func(scan func(...any) error) error) error {
	rows, err := t.conn.Query(ctx, sql, t.bind(args)...)
	if err != nil {
		return err
	}
	return rowsEach(rows, each)
}

// Exec queues a write. The SQL's $1 and $2 are the agent and the thread, args follow
// from $3.
func (t *Tx) Exec(sql string, args ...any) { t.write.Queue(sql, t.bind(args)...) }

// ExecRows is Exec; changed is told how many rows the statement changed.
func (t *Tx) ExecRows(changed func(n int64) error, sql string, args ...any) {
	t.write.Queue(sql, t.bind(args)...).Exec(func(tag pgconnTag) error { return changed(tag.RowsAffected()) })
}

func (t *Tx) bind(args []any) []any { return append([]any{t.Agent, t.Ref.Thread}, args...) }

func rowsEach(rows pgx.Rows, each func(scan func(...any) error) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Columns selects an event in the order Scan reads it.
const Columns = "id, created_at, source, type, subtype, content"

// Scan reads an event selected by Columns.
func Scan(scan func(...any) error) (thread.Event, error) {
	var e thread.Event
	err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content)
	return e, err
}

// Insert appends an event and chains it; it is written with the second trip.
func (t *Tx) Insert(n store.NewEvent) thread.Event {
	e := thread.Event{ID: t.Head + 1, CreatedAt: thread.Stamp(t.Time), Source: n.Source, Type: n.Type, Subtype: n.Subtype, Content: n.Content}
	prev := t.chain
	sum := e.Hash(prev)
	if prev == nil {
		prev = []byte{}
	}
	t.Exec("INSERT INTO event(agent_id, thread_id, id, created_at, source, type, subtype, content, prev, sha256) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)",
		e.ID, e.CreatedAt, e.Source, e.Type, e.Subtype, e.Content, prev, sum[:])
	t.Head, t.chain, t.LastAt = e.ID, sum[:], e.CreatedAt
	t.events = append(t.events, e)
	return e
}

// Dedupe remembers that an event was committed under key.
func (t *Tx) Dedupe(key string, id int64, token uint64) {
	t.Exec("INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES($1,$2,$3,$4,$5)", key, id, int64(token))
}

// Deduped queues the question which event was committed under key; *id stays 0 when
// there is none.
func (t *Tx) Deduped(key string, id *int64) {
	t.One("SELECT event_id FROM dedupe WHERE agent_id = $1 AND thread_id = $2 AND key = $3", []any{key}, nil, id)
}

// Appended are the events that the step has queued.
func (t *Tx) Appended() []thread.Event { return t.events }

// Do runs one step: load queues its reads, then decides and queues the writes. A nil
// fence is a write without a lease. Errors: store.ErrNotFound, ErrLeaseLost, ErrIO,
// and what load and then answer; then nothing has changed.
func (p *Pool) Do(ctx context.Context, r store.Ref, f *store.Fence, load func(*Tx), then func(*Tx) error) error {
	return p.do(ctx, r, f, "", load, then)
}

// Alone is Do without a lease for what must not happen beside a step under one: it
// waits for those under way, and later ones see what it did. Like a fence it locks
// the lease before the thread, or the two would wait for each other.
func (p *Pool) Alone(ctx context.Context, r store.Ref, resource string, load func(*Tx), then func(*Tx) error) error {
	return p.do(ctx, r, nil, resource, load, then)
}

func (p *Pool) do(ctx context.Context, r store.Ref, f *store.Fence, alone string, load func(*Tx), then func(*Tx) error) error {
	c, err := p.o.Pool.Acquire(ctx)
	if err != nil {
		return problem(err)
	}
	defer c.Release()
	t := &Tx{Ref: r, Time: time.Now(), conn: c, alone: alone}
	if f != nil {
		t.Fence = *f
	}
	if err := p.step(ctx, t, f, load, then); err != nil {
		// A connection that is in doubt is closed, which rolls back as well.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
		defer cancel()
		if _, again := c.Exec(back, "ROLLBACK"); again != nil {
			_ = c.Conn().Close(back)
		}
		return problem(err)
	}
	if len(t.events) > 0 && p.o.OnCommit != nil {
		p.o.OnCommit(store.Commit{Ref: r, Events: t.events})
	}
	return nil
}

const rollbackPatience = 5 * time.Second

func (p *Pool) step(ctx context.Context, t *Tx, f *store.Fence, load func(*Tx), then func(*Tx) error) error {
	live, sealed, found := true, int64(0), false
	t.reads.Queue("BEGIN")
	if f != nil && p.o.Live == nil {
		live = false
		t.reads.Queue(`SELECT 1 FROM lease WHERE agent_id = $1 AND resource = $2 AND token = $3 AND NOT released AND expires_at > clock_timestamp() FOR SHARE`,
			t.Agent, f.Resource, int64(f.Token)).Query(func(rows pgx.Rows) error {
			return rowsEach(rows, func(func(...any) error) error { live = true; return nil })
		})
	}
	if t.alone != "" {
		t.reads.Queue("SELECT 1 FROM lease WHERE agent_id = $1 AND resource = $2 FOR UPDATE", t.Agent, t.alone)
	}
	t.One("SELECT uuid, tuple, desired, head, chain, acked, last_at FROM thread WHERE agent_id = $1 AND thread_id = $2 FOR UPDATE", nil, &found,
		&t.UUID, &t.Tuple, &t.Desired, &t.Head, &t.chain, &t.Acked, &t.LastAt)
	if f != nil {
		t.One("SELECT token FROM fence WHERE agent_id = $1 AND thread_id = $2 AND resource = $3", []any{f.Resource}, nil, &sealed)
	}
	if load != nil {
		load(t)
	}
	if err := t.conn.SendBatch(ctx, &t.reads).Close(); err != nil {
		return err
	}
	if !found {
		return store.ErrNotFound
	}
	if f != nil {
		if err := p.fence(t, *f, live, uint64(sealed)); err != nil {
			return err
		}
	}
	t.before = t.Thread
	if err := then(t); err != nil {
		return err
	}
	return t.apply(ctx)
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

// apply writes what was queued, and the thread's row when it has changed.
func (t *Tx) apply(ctx context.Context) error {
	now := t.Thread
	if now.Head != t.before.Head || now.Acked != t.before.Acked || now.Tuple != t.before.Tuple || now.Desired != t.before.Desired {
		t.Exec("UPDATE thread SET head = $3, chain = $4, acked = $5, last_at = $6, tuple = $7, desired = $8 WHERE agent_id = $1 AND thread_id = $2",
			now.Head, now.chain, now.Acked, now.LastAt, now.Tuple, now.Desired)
	}
	if was, is := t.before.due(), now.due(); t.IsInbox() && was != is {
		if is {
			t.write.Queue("INSERT INTO due(agent_id) VALUES($1) ON CONFLICT DO NOTHING", t.Agent)
		} else {
			t.write.Queue("DELETE FROM due WHERE agent_id = $1", t.Agent)
		}
	}
	t.write.Queue("COMMIT")
	return t.conn.SendBatch(ctx, &t.write).Close()
}

// Flush sends what is queued without committing, for a step that must read what it
// wrote.
func (t *Tx) Flush(ctx context.Context) error {
	err := t.conn.SendBatch(ctx, &t.write).Close()
	t.write = pgx.Batch{}
	return err
}

// View reads a thread in one trip, all of it as of one instant. Errors:
// store.ErrNotFound, ErrIO.
func (p *Pool) View(ctx context.Context, r store.Ref, load func(*Tx)) error {
	c, err := p.o.Pool.Acquire(ctx)
	if err != nil {
		return problem(err)
	}
	defer c.Release()
	t := &Tx{Ref: r, Time: time.Now(), conn: c}
	found := false
	t.reads.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	t.One("SELECT uuid, tuple, desired, head, chain, acked, last_at FROM thread WHERE agent_id = $1 AND thread_id = $2", nil, &found,
		&t.UUID, &t.Tuple, &t.Desired, &t.Head, &t.chain, &t.Acked, &t.LastAt)
	load(t)
	t.reads.Queue("COMMIT")
	if err := c.SendBatch(ctx, &t.reads).Close(); err != nil {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
		defer cancel()
		if _, again := c.Exec(back, "ROLLBACK"); again != nil {
			_ = c.Conn().Close(back)
		}
		return problem(err)
	}
	if !found {
		return fmt.Errorf("read %s: %w", r, store.ErrNotFound)
	}
	return nil
}
