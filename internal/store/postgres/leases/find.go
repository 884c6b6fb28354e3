package leases

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// maxFound is the most agents of one answer.
const maxFound = 256

// Find answers what there is to do for a worker: of agents whose lease it has, what it
// was not notified of, and new leases up to MaxNew. Waiting is how many more it could have.
func (t *Table) Find(ctx context.Context, a store.DueQuery) (found []store.DueAgent, waiting int, err error) {
	if a.TTL == 0 {
		a.TTL = lease.DefaultTTL
	}
	if !a.All && len(a.Mine)+len(a.Free) == 0 {
		return nil, 0, nil
	}
	found, granted, waiting, err := t.find(ctx, a)
	if err != nil {
		return nil, 0, fmt.Errorf("find work: %w", unit.Problem(err))
	}
	if a.MaxNew > granted {
		waiting = 0 // who came meanwhile is found the next time
	}
	return found, waiting, nil
}

// find asks the database. What is granted is committed on its disk before it is answered: a
// token that a crash of the server took back would be given once more. So it is not in one
// transaction with what the holder is told, which waits for no disk. It comes first: what was
// granted and not answered is found again by the name of the question, what was told is not.
func (t *Table) find(ctx context.Context, a store.DueQuery) (found []store.DueAgent, granted, waiting int, err error) {
	own, fresh, more := ownRun, newRun, moreRun
	if a.Deliver {
		own, fresh, more = ownDeliver, newDeliver, moreDeliver
	}
	got := &answers{request: a.RequestID, at: map[string]int{}, granted: map[string]bool{}}
	form, grant, told := everything, []any{a.Holder, a.Address, a.RequestID, a.TTL.Milliseconds(), min(a.MaxNew, maxFound)}, []any{a.Holder, a.RequestID}
	if !a.All {
		form, grant = some, append(grant, a.Free)
	}
	b := &pgx.Batch{}
	if a.MaxNew > 0 && (a.All || len(a.Free) > 0) {
		b.Queue(fresh[form], grant...).Query(got.take(true))
	}
	if a.All {
		b.Queue(more, maxFound).QueryRow(func(row pgx.Row) error { return row.Scan(&waiting) })
	}
	if b.Len() > 0 {
		if err := t.pool.SendBatch(ctx, b).Close(); err != nil {
			return nil, 0, 0, err
		}
	}
	if !a.All {
		mine := slices.Clone(a.Mine)
		for _, agent := range a.Free { // who was not free may be his
			if _, there := got.at[agent]; !there {
				mine = append(mine, agent)
			}
		}
		if len(mine) == 0 {
			return got.found, len(got.granted), 0, nil
		}
		told = append(told, mine)
	}
	rows, err := t.pool.Query(ctx, own[form], told...)
	if err == nil {
		err = got.take(false)(rows)
	}
	return got.found, len(got.granted), waiting, err
}

// answers puts together what the statements found.
type answers struct {
	request string
	found   []store.DueAgent
	granted map[string]bool // agents of which the lease was granted by this very question
	at      map[string]int  // index in found, by agent
}

func (s *answers) take(granted bool) func(pgx.Rows) error {
	return each(func(rows pgx.Rows) error {
		var r term
		var f store.DueAgent
		var thread *string
		if err := rows.Scan(r.into(&f.Agent, &f.Head, &thread, &f.Since)...); err != nil {
			return err
		}
		i, there := s.at[f.Agent]
		if there && s.granted[f.Agent] && !granted {
			return nil // by this very question, and told then
		}
		if !there {
			f.Lease = r.record()
			if granted {
				s.granted[f.Agent] = true
			}
			f.Fresh = granted || f.Lease.RequestID == s.request+"/"+f.Agent
			i, s.at[f.Agent] = len(s.found), len(s.found)
			s.found = append(s.found, f)
		}
		if thread != nil {
			s.found[i].Threads = append(s.found[i].Threads, *thread)
		}
		return nil
	})
}

// granted is what a new term sets; $1 to $4 are holder, address, request and ttl.
const granted = `token = GREATEST(l.token, ` + seal + `) + 1, holder = $1, address = $2, request_id = $3 || '/' || l.agent_id,
	ttl_ms = $4::bigint, expires_at = clock_timestamp() + $4::bigint * interval '1 ms', released = false, yield = false`

// forms are a statement that looks at everything, and at some agents only: each of the
// latter is found by its key, however many others are due.
func forms(sql, from, which string) [2]string {
	return [2]string{
		everything: strings.NewReplacer("{from}", "", "{which}", "").Replace(sql),
		some:       strings.NewReplacer("{from}", from, "{which}", which).Replace(sql),
	}
}

const everything, some = 0, 1

const (
	freeRun = `SELECT l.agent_id, l.resource, t.head, d.since FROM {from}due d
		JOIN lease l ON l.agent_id = d.agent_id AND l.resource = 'agent/' || d.agent_id
		JOIN thread t ON t.agent_id = d.agent_id AND t.thread_id = 'inbox'
		WHERE {which}` + open

	freeDeliver = `SELECT o.agent_id, o.since FROM {from}outbox o
		JOIN lease l ON l.agent_id = o.agent_id AND l.resource = 'deliver/' || o.agent_id
		WHERE {which}o.acked < o.head AND ` + open
)

var (
	ownRun = forms(`UPDATE due d SET told = t.head FROM {from}lease l, thread t
		WHERE {which}l.holder = $1 AND `+live+` AND l.resource = 'agent/' || l.agent_id
		AND d.agent_id = l.agent_id AND t.agent_id = l.agent_id AND t.thread_id = 'inbox'
		AND (t.head > d.told OR l.request_id = $2 || '/' || l.agent_id) AND `+lazily+`
		RETURNING `+columns+`, l.agent_id, t.head, NULL::text, d.since`, "unnest($3::text[]) x(id), ", "l.agent_id = x.id AND ")

	// Only who is taken out of the queue is moved behind those who wait in it: who is taken
	// by name comes when there is room, and a row less is written before he is answered.
	newRun = [2]string{
		everything: pickRun[everything] + ", moved AS (UPDATE due d SET since = clock_timestamp(), told = p.head FROM pick p WHERE d.agent_id = p.agent_id)" + grantRun,
		some:       pickRun[some] + grantRun,
	}
	pickRun  = forms("WITH pick AS MATERIALIZED ("+freeRun+" ORDER BY d.since LIMIT $5 FOR UPDATE OF l SKIP LOCKED)", "unnest($6::text[]) x(id), ", "d.agent_id = x.id AND ")
	grantRun = " UPDATE lease l SET " + granted + ` FROM pick p WHERE l.agent_id = p.agent_id AND l.resource = p.resource
		RETURNING ` + columns + ", l.agent_id, p.head, NULL::text, p.since"

	ownDeliver = forms(`UPDATE outbox o SET told = o.head FROM {from}lease l
		WHERE {which}l.holder = $1 AND `+live+` AND l.resource = 'deliver/' || l.agent_id
		AND o.agent_id = l.agent_id AND o.acked < o.head AND (o.told < o.head OR l.request_id = $2 || '/' || l.agent_id) AND `+lazily+`
		RETURNING `+columns+`, l.agent_id, 0::bigint, o.thread, o.since`, "unnest($3::text[]) x(id), ", "l.agent_id = x.id AND ")

	newDeliver = forms(`WITH open AS MATERIALIZED (
			SELECT agent_id, min(since) AS since FROM (`+freeDeliver+` ORDER BY o.since LIMIT 8 * $5) w GROUP BY agent_id),
		pick AS MATERIALIZED (
			SELECT l.agent_id, l.resource, o.since FROM open o JOIN lease l ON l.agent_id = o.agent_id AND l.resource = 'deliver/' || o.agent_id
			WHERE `+open+` ORDER BY o.since LIMIT $5 FOR UPDATE OF l SKIP LOCKED),
		moved AS (UPDATE outbox o SET since = clock_timestamp(), told = o.head FROM pick p WHERE o.agent_id = p.agent_id AND o.acked < o.head RETURNING o.agent_id, o.thread),
		got AS (UPDATE lease l SET `+granted+` FROM pick p WHERE l.agent_id = p.agent_id AND l.resource = p.resource RETURNING l.*, p.since)
		SELECT `+columns+`, l.agent_id, 0::bigint, m.thread, l.since FROM got l LEFT JOIN moved m ON m.agent_id = l.agent_id ORDER BY l.since, m.thread`,
		"unnest($6::text[]) x(id), ", "o.agent_id = x.id AND ")

	moreRun     = forms(`SELECT count(*) FROM (`+freeRun+` LIMIT $1) w`, "", "")[everything]
	moreDeliver = forms(`SELECT count(DISTINCT agent_id) FROM (`+freeDeliver+` LIMIT $1) w`, "", "")[everything]
)

// Reopen makes a thread of an agent due again for whoever has, or gets, its deliver
// lease: something is to be sent in it of which the inbox does not know yet.
func (t *Table) Reopen(ctx context.Context, agent, threadID string) error {
	_, err := t.pool.Exec(ctx, `INSERT INTO outbox AS o (agent_id, thread_id, thread, head) VALUES($1, 'inbox', $2, 1)
		ON CONFLICT (agent_id, thread_id, thread) DO UPDATE SET told = 0, head = GREATEST(o.head, 1), acked = LEAST(o.acked, GREATEST(o.head, 1) - 1)`, agent, threadID)
	return problem("reopen", lease.DeliverResource(agent), err)
}

// Reap ends the terms whose time is over and those of holders that died on this
// machine, and answers each of them to one registry alone: their work is due again.
// next is how long until the first live term ends if nobody renews it; 0: there is none.
func (t *Table) Reap(ctx context.Context) (ended []lease.Record, next time.Duration, err error) {
	ended, next, err = t.reap(ctx)
	return ended, next, problem("reap", "", err)
}

func (t *Table) reap(ctx context.Context) (ended []lease.Record, next time.Duration, err error) {
	rows, err := t.pool.Query(ctx, "SELECT DISTINCT holder FROM lease WHERE NOT released")
	if err != nil {
		return nil, 0, err
	}
	holders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(holders) == 0 {
		return nil, 0, err
	}
	gone := []string{}
	for _, h := range holders {
		if t.dead(h) {
			gone = append(gone, h)
		}
	}
	b := &pgx.Batch{}
	b.Queue(`WITH over AS MATERIALIZED (SELECT agent_id, resource FROM lease WHERE NOT released AND (expires_at <= clock_timestamp() OR holder = ANY($1)) FOR UPDATE SKIP LOCKED)
		UPDATE lease l SET released = true, yield = false FROM over o WHERE l.agent_id = o.agent_id AND l.resource = o.resource RETURNING `+columns, gone).
		Query(each(func(rows pgx.Rows) error {
			var r term
			err := rows.Scan(r.into()...)
			ended = append(ended, r.record())
			return err
		}))
	var left *int64
	b.Queue("SELECT min((EXTRACT(EPOCH FROM expires_at - clock_timestamp()) * 1000)::bigint) FROM lease WHERE NOT released").
		QueryRow(func(row pgx.Row) error { return row.Scan(&left) })
	if err := t.pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, 0, err
	}
	if left != nil {
		next = max(time.Duration(*left)*time.Millisecond, time.Millisecond)
	}
	return ended, next, nil
}
