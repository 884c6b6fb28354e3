// Package leases grants, renews and ends leases for registries that share a database, in
// the rows of table lease, and finds agents that have work.
//
// Its terms, tokens and promises are those of package lease, with these differences in
// storage:
//
//   - The database's clock judges expiry, in the statement that acts on it
//     (clock_timestamp): no registry's clock takes part, so theirs may differ.
//   - A token is on disk before it is granted. A renewal is written lazily: a crash of
//     the server loses at most one renewal, and the term ends a little earlier.
//   - The fence of a write is the row itself, FOR SHARE in the write's transaction
//     (package unit): a takeover waits for the writes under way, and later ones find
//     another token. The lock comes before that of any thread.
//   - Only the machine of the lock file can see that the process of a holder died. A
//     registry on that machine reports it (Reap); others wait for the end of the term.
//
// The tables due and outbox hold the agents with work. The transactions that create or
// finish work maintain them. Find grants in the statement that searches, so that several
// registries that search at once get different agents (SKIP LOCKED), the longest waiting
// first; a grant moves its agent behind all that wait.
//
// The package notifies nobody: see notify.
package leases

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Table is the authority. It is safe for concurrent use and keeps nothing.
type Table struct {
	pool *pgxpool.Pool
	dead func(holder string) bool
}

// New makes the table over a database, which stays the caller's. dead answers true only
// for a holder that certainly runs no more (lease.HolderDead); nil: nobody knows.
func New(p *pgxpool.Pool, dead func(holder string) bool) *Table {
	if dead == nil {
		dead = func(string) bool { return false }
	}
	return &Table{p, dead}
}

const (
	// columns of a term, as term.into reads them; the last is what is left of it, µs.
	columns = "l.resource, l.token, l.holder, l.address, l.request_id, l.ttl_ms, l.expires_at, l.released, l.yield, (EXTRACT(EPOCH FROM l.expires_at - clock_timestamp()) * 1000000)::bigint"
	// live is a term that is not over, free one that is.
	live = "(NOT l.released AND l.expires_at > clock_timestamp())"
	free = "(l.released OR l.expires_at <= clock_timestamp())"
	// open is a term that is handed out to who looks for work: not one that was just given
	// up because somebody asked for it, for he takes it himself (Acquire), and those who
	// look are faster.
	open = "(" + free + " AND NOT (l.yield AND l.released AND l.expires_at > clock_timestamp() - interval '2 s'))"
	// seal is the token that the inbox has seen: an agent may have come from elsewhere.
	seal = "COALESCE((SELECT f.token FROM fence f WHERE f.agent_id = l.agent_id AND f.thread_id = 'inbox' AND f.resource = l.resource), 0)"
	// lazily, as a condition, makes the statement's commit wait for no disk.
	lazily = "(SELECT set_config('synchronous_commit', 'off', true)) = 'off'"
)

// term is a row as it was a moment ago.
type term struct {
	lease.Record
	ttl, left int64
}

func (t *term) into(more ...any) []any {
	return append([]any{&t.Resource, &t.Token, &t.Holder, &t.Address, &t.RequestID, &t.ttl, &t.Expires, &t.Released, &t.YieldRequested, &t.left}, more...)
}

func (t *term) live() bool { return !t.Released && t.left > 0 }

func (t *term) record() lease.Record {
	t.TTL = time.Duration(t.ttl) * time.Millisecond
	return t.Record
}

func (t *term) held() error {
	return &lease.HeldError{Resource: t.Resource, Holder: t.Holder, Address: t.Address, RetryAfter: max(time.Duration(t.left)*time.Microsecond, time.Millisecond)}
}

// acquire makes a row or a new term in it, or moves the deadline of the same one. The
// row is locked before anything of it is judged.
const acquire = `INSERT INTO lease AS l (agent_id, resource, holder, address, request_id, ttl_ms, token, expires_at)
SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::bigint, GREATEST($7::bigint,
	COALESCE((SELECT f.token FROM fence f WHERE f.agent_id = $1 AND f.thread_id = 'inbox' AND f.resource = $2), 0)) + 1,
	clock_timestamp() + $6::bigint * interval '1 ms'
ON CONFLICT (agent_id, resource) DO UPDATE SET
	token = CASE WHEN ` + same + ` THEN l.token ELSE GREATEST(l.token + 1, excluded.token) END,
	yield = l.yield AND ` + same + `, holder = excluded.holder, address = excluded.address, request_id = excluded.request_id,
	ttl_ms = excluded.ttl_ms, released = false, expires_at = clock_timestamp() + excluded.ttl_ms * interval '1 ms'
WHERE ` + free + ` OR l.holder = excluded.holder AND l.request_id = excluded.request_id
RETURNING ` + columns

const same = "(" + live + " AND l.holder = excluded.holder AND l.request_id = excluded.request_id)"

// Acquire grants a resource as lease.Table does: a live term of the same holder and
// request again, its deadline moved; a new one when it is free; else *lease.HeldError.
func (t *Table) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Record, error) {
	req, err := req.Checked()
	if err != nil {
		return lease.Record{}, err
	}
	for tries := 0; ; tries++ {
		got, other, err := t.try(ctx, req)
		if err != nil || got != nil {
			return got.orZero(), problem("acquire", req.Resource, err)
		}
		if tries == 3 || other.Holder == req.Holder || !t.dead(other.Holder) {
			return lease.Record{}, other.held()
		}
		if _, err := t.pool.Exec(ctx, "UPDATE lease SET released = true WHERE agent_id = $1 AND resource = $2 AND token = $3",
			unit.LeaseRow(req.Resource), req.Resource, other.Token); err != nil {
			return lease.Record{}, problem("acquire", req.Resource, err)
		}
	}
}

func (t *term) orZero() lease.Record {
	if t == nil {
		return lease.Record{}
	}
	return t.record()
}

// try answers the granted term, or the one that stands in the way.
func (t *Table) try(ctx context.Context, req lease.AcquireRequest) (got, other *term, err error) {
	b := &pgx.Batch{}
	agent := unit.LeaseRow(req.Resource)
	b.Queue(acquire, agent, req.Resource, req.Holder, req.Address, req.RequestID, req.TTL.Milliseconds(), int64(req.Floor)).Query(each(func(rows pgx.Rows) error {
		got = &term{}
		return rows.Scan(got.into()...)
	}))
	b.Queue("SELECT "+columns+" FROM lease l WHERE agent_id = $1 AND resource = $2", agent, req.Resource).Query(each(func(rows pgx.Rows) error {
		other = &term{}
		return rows.Scan(other.into()...)
	}))
	err = t.pool.SendBatch(ctx, b).Close()
	if err == nil && got == nil && other == nil {
		err = store.ErrNotFound // the row is gone
	}
	return got, other, err
}

func each(f func(pgx.Rows) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := f(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// one reads at most one term; $1 and $2 are the agent and the resource.
func (t *Table) one(ctx context.Context, resource, sql string, args ...any) (out *term, err error) {
	rows, err := t.pool.Query(ctx, sql, append([]any{unit.LeaseRow(resource), resource}, args...)...)
	if err != nil {
		return nil, err
	}
	err = each(func(rows pgx.Rows) error {
		out = &term{}
		return rows.Scan(out.into()...)
	})(rows)
	return out, err
}

func problem(what, resource string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s lease %s: %w", what, resource, unit.Problem(err))
}

func lost(what, resource string, token uint64) error {
	return fmt.Errorf("%s lease %s token %d: %w", what, resource, token, lease.ErrLost)
}

// Renew gives a live term one more ttl from now; else lease.ErrLost.
func (t *Table) Renew(ctx context.Context, resource, holder string, token uint64) (lease.Record, error) {
	got, err := t.one(ctx, resource, `UPDATE lease l SET expires_at = clock_timestamp() + l.ttl_ms * interval '1 ms'
		WHERE l.agent_id = $1 AND l.resource = $2 AND l.token = $3 AND l.holder = $4 AND `+live+` AND `+lazily+` RETURNING `+columns,
		int64(token), holder)
	if err == nil && got == nil {
		return lease.Record{}, lost("renew", resource, token)
	}
	return got.orZero(), problem("renew", resource, err)
}

// Check answers nil while the token is that of a live term; else lease.ErrLost. It is
// for what writes nothing: a write has its fence.
func (t *Table) Check(ctx context.Context, resource string, token uint64) error {
	got, isLive, err := t.Get(ctx, resource)
	if err == nil && (!isLive || got.Token != token) {
		return lost("check", resource, token)
	}
	return err
}

// Release ends the term of this very token: nil also when it is over, lease.ErrLost
// when a later one was granted. The turns begun under it are no crashes then.
func (t *Table) Release(ctx context.Context, resource string, token uint64) error {
	got, err := t.one(ctx, resource, `WITH was AS (
			UPDATE lease l SET released = true, expires_at = LEAST(l.expires_at, clock_timestamp())
			FROM (SELECT o.expires_at > clock_timestamp() AS live FROM lease o WHERE o.agent_id = $1 AND o.resource = $2) o
			WHERE l.agent_id = $1 AND l.resource = $2 AND l.token = $3 AND NOT l.released RETURNING o.live),
		calm AS (
			UPDATE turn SET crash_attempts = 0 WHERE agent_id = $1 AND state <> 'done' AND token = $3
			AND $2 = 'agent/' || $1 AND EXISTS (SELECT 1 FROM was WHERE live))
		SELECT `+columns+` FROM lease l WHERE l.agent_id = $1 AND l.resource = $2 AND l.token = $3 AND (SELECT count(*) FROM was) >= 0`,
		int64(token))
	if err == nil && got == nil {
		return lost("release", resource, token)
	}
	return problem("release", resource, err)
}

// RequestYield asks the holder to give the resource back; it reports whether there is one.
func (t *Table) RequestYield(ctx context.Context, resource string) (bool, error) {
	got, err := t.one(ctx, resource, "UPDATE lease l SET yield = true WHERE l.agent_id = $1 AND l.resource = $2 AND "+live+" RETURNING "+columns)
	return got != nil, problem("yield", resource, err)
}

// Get answers the last term of a resource and whether it is live; the zero record
// when there was none.
func (t *Table) Get(ctx context.Context, resource string) (lease.Record, bool, error) {
	got, err := t.one(ctx, resource, "SELECT "+columns+" FROM lease l WHERE l.agent_id = $1 AND l.resource = $2")
	if err != nil || got == nil || got.Token == 0 {
		return lease.Record{}, false, problem("read", resource, err)
	}
	return got.record(), got.live(), nil
}

// List answers the live terms after a resource, at most limit, in order.
func (t *Table) List(ctx context.Context, after string, limit int) ([]lease.Record, error) {
	rows, err := t.pool.Query(ctx, "SELECT "+columns+" FROM lease l WHERE "+live+" AND l.resource > $1 ORDER BY l.resource LIMIT $2", after, limit)
	if err != nil {
		return nil, problem("list", "", err)
	}
	var out []lease.Record
	err = each(func(rows pgx.Rows) error {
		var r term
		err := rows.Scan(r.into()...)
		out = append(out, r.record())
		return err
	})(rows)
	return out, problem("list", "", err)
}
