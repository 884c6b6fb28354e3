package unit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Thread is the row that a transaction holds.
type Thread struct {
	UUID, Tuple, Desired string
	Head                 int64
	Acked                int64 // of our own consumer
	LastAt               string
	chain                []byte
}

// Chain is the hash of the event Head.
func (t Thread) Chain() []byte { return t.chain }

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
	live   func(resource string, token uint64) error // see Options.Live
	holder string                                    // of the agent's lease, of an inbox that is written without one
	alone  string                                    // resource whose lease no other transaction may use meanwhile
	reads  *pgx.Batch
	write  *pgx.Batch
	events []thread.Event
	before Thread
	beside *Tx  // of the thread that the step is Joint with; nil: none
	began  bool // something was read: it is not begun again on another connection
	sent   bool // something was written before the end
}

// Read queues a read for the first trip; each is called for every row, in order.
// The SQL's $1 and $2 are the agent and the thread, args follow from $3.
func (t *Tx) Read(sql string, args []any, each func(scan func(...any) error) error) {
	t.reads.Queue(sql, t.bind(args)...).Query(func(rows pgx.Rows) error { return t.each(rows, each) })
}

// ReadRaw is Read of rows that belong to no thread: args are all values of the SQL, from $1.
func (t *Tx) ReadRaw(sql string, args []any, each func(scan func(...any) error) error) {
	t.reads.Queue(sql, raw(args)...).Query(func(rows pgx.Rows) error { return t.each(rows, each) })
}

// Held queues a read that reports whether a lease is current. Then a change of its holder waits for the end of the
// step.
func (t *Tx) Held(f store.Fence, held *bool) {
	if t.live != nil {
		*held = t.live(f.Resource, f.Token) == nil
		return
	}
	t.ReadRaw(LeasedNow, LeaseArgs(f), func(func(...any) error) error {
		*held = true
		return nil
	})
}

// One queues a read of at most one row into dest; found, when not nil, reports
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
	return t.each(rows, each)
}

// Again reads in one more trip what load queues: for what few steps need, and those know
// while they decide.
func (t *Tx) Again(ctx context.Context, load func()) error {
	*t.reads = pgx.Batch{}
	load()
	return t.conn.SendBatch(ctx, t.reads).Close()
}

// Exec queues a write. The SQL's $1 and $2 are the agent and the thread, args follow
// from $3.
func (t *Tx) Exec(sql string, args ...any) { t.write.Queue(sql, t.bind(args)...) }

// ExecRaw is Exec of rows that belong to no thread: args are all values of the SQL, from $1.
func (t *Tx) ExecRaw(sql string, args ...any) { t.write.Queue(sql, raw(args)...) }

// ExecRows is Exec; changed receives how many rows the statement changed.
func (t *Tx) ExecRows(changed func(n int64) error, sql string, args ...any) {
	t.write.Queue(sql, t.bind(args)...).Exec(func(tag pgconn.CommandTag) error { return changed(tag.RowsAffected()) })
}

func (t *Tx) bind(args []any) []any {
	return append([]any{t.Agent, t.Ref.Thread}, raw(args)...)
}

func raw(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = stored(a)
	}
	return out
}

func (t *Tx) each(rows pgx.Rows, each func(scan func(...any) error) error) error {
	defer rows.Close()
	for rows.Next() {
		t.began = true
		if err := each(func(dest ...any) error {
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			return restore(dest)
		}); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Insert appends an event with the next id.
func (t *Tx) Insert(n store.NewEvent) thread.Event {
	e := thread.Event{ID: t.Head + 1, CreatedAt: thread.Stamp(t.Time), Source: n.Source, Type: n.Type, Subtype: n.Subtype, Content: n.Content}
	t.Append(e)
	return e
}

// Append chains an event whose id follows Head; it is written with the second trip.
func (t *Tx) Append(e thread.Event) {
	prev := t.chain
	sum := e.Hash(prev)
	if prev == nil {
		prev = []byte{}
	}
	t.Exec("INSERT INTO event(agent_id, thread_id, id, created_at, source, type, subtype, content, prev, sha256) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)",
		e.ID, e.CreatedAt, e.Source, e.Type, e.Subtype, e.Content, prev, sum[:])
	t.Head, t.chain, t.LastAt = e.ID, sum[:], e.CreatedAt
	t.events = append(t.events, e)
}

// Dedupe remembers that an event was committed under key.
func (t *Tx) Dedupe(key string, id int64, token uint64) {
	t.Exec("INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES($1,$2,$3,$4,$5)", key, id, int64(token))
}

// DedupeNew is Dedupe of a key of no lease, which stays as it is when it is in use.
func (t *Tx) DedupeNew(key string, id int64) {
	t.Exec("INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES($1,$2,$3,$4,0) ON CONFLICT DO NOTHING", key, id)
}

// Deduped answers the event that was committed under the key $3.
const Deduped = "SELECT event_id FROM dedupe WHERE agent_id = $1 AND thread_id = $2 AND key = $3"

// Deduped queues the question which event was committed under key; *id stays 0 when
// there is none.
func (t *Tx) Deduped(key string, id *int64) {
	t.One(Deduped, []any{key}, nil, id)
}

// Appended are the events that the step has queued.
func (t *Tx) Appended() []thread.Event { return t.events }

// moved reports that the thread's row has changed.
func (t *Tx) moved() bool {
	now := t.Thread
	return now.Head != t.before.Head || now.Acked != t.before.Acked || now.Tuple != t.before.Tuple || now.Desired != t.before.Desired
}

// writes reports that the step has written something, or is to.
func (t *Tx) writes() bool { return t.sent || t.write.Len() > 0 || t.moved() }

// apply writes what was queued, and the thread's row when it has changed. A transaction
// with nothing to write is taken back: its locks alone would make a commit wait for the
// disk.
func (t *Tx) apply(ctx context.Context) error {
	if !t.writes() && (t.beside == nil || !t.beside.moved()) {
		_, err := t.conn.Exec(ctx, "ROLLBACK")
		return err
	}
	t.keep()
	if t.beside != nil {
		t.beside.keep()
	}
	t.write.Queue("COMMIT")
	return t.conn.SendBatch(ctx, t.write).Close()
}

// keep queues the thread's row when it has changed, and whether its agent is due.
func (t *Tx) keep() {
	if now := t.Thread; t.moved() {
		t.Exec(`UPDATE thread SET head = $3, chain = $4, acked = $5, last_at = $6, tuple = $7, desired = $8,
			acked_at = CASE acked WHEN $5 THEN acked_at ELSE $9 END WHERE agent_id = $1 AND thread_id = $2`,
			now.Head, now.chain, now.Acked, now.LastAt, now.Tuple, now.Desired, thread.Stamp(t.Time))
	}
	if was, is := t.before.due(), t.due(); t.IsInbox() && was != is {
		if is {
			t.write.Queue("INSERT INTO due(agent_id) VALUES($1) ON CONFLICT DO NOTHING", t.Agent)
		} else {
			t.write.Queue("DELETE FROM due WHERE agent_id = $1", t.Agent)
		}
	}
}

// JointTx is the thread that the step is Joint with. What is read and written of it goes
// with the rest.
func (t *Tx) JointTx() *Tx { return t.beside }

// join queues that another thread of the agent is held as well. The fence holds for it
// too: it is the agent's.
func (t *Tx) join(id string, s *seen) {
	b := &Tx{Ref: store.Ref{Agent: t.Agent, Thread: id}, Fence: t.Fence, conn: t.conn, reads: t.reads, write: t.write}
	b.One("SELECT "+ofThread+" FROM thread t WHERE agent_id = $1 AND thread_id = $2 FOR NO KEY UPDATE OF t", nil, &s.beside, b.row()...)
	t.beside = b
}

// ofThread are the columns of a thread's row, and row where they go.
const ofThread = "uuid, tuple, desired, head, chain, acked, last_at"

func (t *Tx) row() []any {
	return []any{&t.UUID, &t.Tuple, &t.Desired, &t.Head, &t.chain, &t.Acked, &t.LastAt}
}

// Flush sends what is queued without committing, for a step that must read what it
// wrote.
func (t *Tx) Flush(ctx context.Context) error {
	err := t.conn.SendBatch(ctx, t.write).Close()
	*t.write, t.sent = pgx.Batch{}, true
	return err
}

// Make makes a thread; false when it is there already. Errors: store.ErrNotFound when
// its agent is not. A repeat after a lost answer says false.
func (p *Pool) Make(ctx context.Context, r store.Ref, tuple string) (made bool, err error) {
	err = p.on(ctx, r, func(t *Tx) error {
		tag, err := t.conn.Exec(ctx, `INSERT INTO thread(agent_id, thread_id, uuid, tuple)
			VALUES($1, $2, gen_random_uuid()::text, $3)
			ON CONFLICT (agent_id, thread_id) DO NOTHING`, t.bind([]any{tuple})...)
		made = tag.RowsAffected() == 1
		return err
	})
	return made, err
}
