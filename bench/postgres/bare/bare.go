// Package bare executes what the runtime is compared with: the transactions of a message
// as rows, locks and waits for the disk, and nothing else. The doc comment of the program
// defines a message and a unit.
//
// A writer decides nothing, reads nothing, hashes nothing and calls nobody: it knows
// everything beforehand and sends each transaction in one round trip. It promises only
// that each was committed.
package bare

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// Statements of bare transactions. The agent is $1, the thread $2 wherever there is one.
const (
	leased  = "SELECT 1 FROM lease WHERE agent_id = $1 AND resource = 'agent/' || $1 AND token = 1 AND NOT released AND expires_at > clock_timestamp()"
	fence   = leased + " FOR SHARE"
	lazy    = leased + " AND set_config('synchronous_commit', 'off', true) = 'off' FOR SHARE"
	shown   = "SELECT uuid, tuple, desired, head, chain, acked, last_at FROM thread WHERE agent_id = $1 AND thread_id = $2"
	hold    = shown + " FOR NO KEY UPDATE"
	event   = "INSERT INTO event(agent_id, thread_id, id, created_at, source, type, subtype, content, prev, sha256) VALUES($1,$2,$3,'2026-11-22T00:00:00.000000Z','external:bench:bench:dm:p:p','message',NULL,'{\"text\":\"say: hello, how are you today\"}',$4,$4)"
	dedupe  = "INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES($1,$2,$3,$4,1)"
	head    = "UPDATE thread SET head = $3, chain = $4, last_at = '2026-11-22T00:00:00.000000Z' WHERE agent_id = $1 AND thread_id = $2"
	due     = "INSERT INTO due(agent_id) VALUES($1) ON CONFLICT DO NOTHING"
	read    = "SELECT id, created_at, source, type, subtype, content FROM event WHERE agent_id = $1 AND thread_id = $2 AND id > $3 ORDER BY id LIMIT 64"
	turn    = "INSERT INTO turn(agent_id, thread_id, key, inbox_id, state, crash_attempts, inbound_id, claimed_at, token) VALUES($1,$2,$3,$4,'claimed',1,$4,1,1)"
	ended   = "UPDATE turn SET state = 'done', fate = 'replied', reply_id = $4, finished_at = 1 WHERE agent_id = $1 AND thread_id = $2 AND key = $3"
	step    = "INSERT INTO step(agent_id, thread_id, turn, key, seq, kind, state, name, result, recorded_at) VALUES($1,$2,$3,'model:1',1,'model','done','offline','{\"text\":\"hello, how are you today\"}',1)"
	skipped = "INSERT INTO delivery(agent_id, thread_id, event_id, key, state, created_at, updated_at) VALUES($1,$2,$3,$4,'skipped',1,1)"
	fate    = "INSERT INTO fate(agent_id, thread_id, inbox_id, key, thread, fate, at) VALUES($1,$2,$3,$4,'threads/peers/p','replied',1) ON CONFLICT (agent_id, thread_id, inbox_id) DO NOTHING"
	acked   = "UPDATE thread SET acked = $3 WHERE agent_id = $1 AND thread_id = $2"
	settled = "DELETE FROM due WHERE agent_id = $1"
)

const (
	inbox = "inbox"
	peers = "threads/peers/p"
)

// Writers make the transactions of messages, each for an agent of its own.
type Writers struct {
	Close func()

	pool *pgxpool.Pool
	run  string // begins the names of its agents
	sum  []byte
	next map[string]int64
	mu   sync.Mutex
}

// One is what a writer does again and again: Unit or Message.
type One func(ctx context.Context, c *pgxpool.Conn, agent string, n int64) error

// Open prepares a database for so many writers, with the settings the runtime has.
func Open(ctx context.Context, url string, writers int) (*Writers, error) {
	db, err := pool.Open(ctx, Pooled(url, writers))
	if err != nil {
		return nil, err
	}
	b := &Writers{Close: db.Close, pool: db, run: "bare-" + strings.ToLower(rand.Text()) + "-", sum: make([]byte, 32), next: map[string]int64{}}
	for _, q := range []string{
		"INSERT INTO agent(agent_id) SELECT $2 || i FROM generate_series(0, $1::int - 1) i",
		"INSERT INTO thread(agent_id, thread_id, uuid, desired) SELECT $2 || i, t, 'u', 'started' FROM generate_series(0, $1::int - 1) i, unnest(ARRAY['" + inbox + "', '" + peers + "']) t",
		`INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at)
			SELECT $2 || i, 'agent/' || $2 || i, 1, 'bare', '', '', 0, 'infinity' FROM generate_series(0, $1::int - 1) i`,
	} {
		if _, err := b.pool.Exec(ctx, q, writers, b.run); err != nil {
			db.Close()
			return nil, err
		}
	}
	return b, nil
}

// Pooled is the URL with so many connections in its pool.
func Pooled(url string, n int) string {
	mark := "?"
	if strings.Contains(url, "?") {
		mark = "&"
	}
	return fmt.Sprintf("%s%spool_max_conns=%d", url, mark, n)
}

// send makes a transaction of statements in one trip.
func (b *Writers) send(ctx context.Context, c *pgxpool.Conn, begin string, list ...call) error {
	t := &pgx.Batch{}
	t.Queue(begin)
	for _, s := range list {
		t.Queue(s.sql, s.args...)
	}
	t.Queue("COMMIT")
	return c.SendBatch(ctx, t).Close()
}

type call struct {
	sql  string
	args []any
}

func do(sql string, args ...any) call { return call{sql, args} }

// Unit is one transaction under a lease: an event with its key, head and ack.
func (b *Writers) Unit(ctx context.Context, c *pgxpool.Conn, agent string, n int64) error {
	return b.send(ctx, c, "BEGIN", do(fence, agent), do(hold, agent, inbox), do(event, agent, inbox, n, b.sum),
		do(dedupe, agent, inbox, fmt.Sprint("k", n), n), do(head, agent, inbox, n, b.sum), do(acked, agent, inbox, n))
}

// Message is the four transactions of a message; see the doc comment of the program.
func (b *Writers) Message(ctx context.Context, c *pgxpool.Conn, agent string, n int64) error {
	key := fmt.Sprintf("0123456789abcdef-%d", n)
	first, second := 2*n-1, 2*n
	if err := b.send(ctx, c, "BEGIN", do(hold, agent, inbox), do(event, agent, inbox, n, b.sum), do(dedupe, agent, inbox, "push:"+key, n), do(head, agent, inbox, n, b.sum), do(due, agent)); err != nil {
		return err
	}
	if err := b.send(ctx, c, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", do(leased, agent), do(shown, agent, inbox), do(read, agent, inbox, n-1)); err != nil {
		return err
	}
	if err := b.send(ctx, c, "BEGIN", do(lazy, agent), do(hold, agent, peers), do(event, agent, peers, first, b.sum), do(dedupe, agent, peers, key+":in", first),
		do(turn, agent, peers, key, n), do(head, agent, peers, first, b.sum)); err != nil {
		return err
	}
	return b.send(ctx, c, "BEGIN", do(fence, agent), do(hold, agent, peers), do(hold, agent, inbox), do(step, agent, peers, key), do(event, agent, peers, second, b.sum),
		do(dedupe, agent, peers, key+":out", second), do(skipped, agent, peers, second, key), do(ended, agent, peers, key, second), do(head, agent, peers, second, b.sum),
		do(fate, agent, inbox, n, key), do(acked, agent, inbox, n), do(settled, agent))
}

// Drive lets writers make one after the other for a while.
func (b *Writers) Drive(ctx context.Context, writers int, mode string, lasts time.Duration, one One) (load.Result, error) {
	var mu sync.Mutex
	var out load.Result
	errs := make([]error, writers)
	var g sync.WaitGroup
	begun := time.Now()
	for w := range writers {
		g.Go(func() {
			agent := fmt.Sprint(b.run, w)
			took, err := b.writer(ctx, agent, mode, begun.Add(lasts), one)
			mu.Lock()
			defer mu.Unlock()
			errs[w], out.Messages, out.Reply = err, out.Messages+len(took), append(out.Reply, took...)
		})
	}
	g.Wait()
	out.Took = time.Since(begun)
	slices.Sort(out.Reply)
	return out, errors.Join(errs...)
}

func (b *Writers) writer(ctx context.Context, agent, mode string, until time.Time, one One) (took []time.Duration, err error) {
	c, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if _, err := c.Exec(ctx, "SELECT set_config('synchronous_commit', $1, false)", mode); err != nil {
		return nil, err
	}
	b.mu.Lock()
	n := b.next[agent]
	b.mu.Unlock()
	for at := time.Now(); at.Before(until); {
		n++
		if err := one(ctx, c, agent, n); err != nil {
			return took, err
		}
		now := time.Now()
		took, at = append(took, now.Sub(at)), now
	}
	b.mu.Lock()
	b.next[agent] = n
	b.mu.Unlock()
	return took, nil
}
