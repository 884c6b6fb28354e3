package transfer

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/consumer"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/store/transfer/rows"
	"github.com/theclaw/agents/internal/thread"
)

// A batch of rows goes to the server at once.
const (
	maxRows  = 500
	maxBytes = 4 << 20
)

// database is an agent in a database that is shared, in one transaction.
type database struct {
	tx     pgx.Tx
	agent  string
	queued pgx.Batch
	size   int
	last   rows.Row         // event that was put last, for the row of its thread
	acked  int64            // of the thread that was put last
	tokens map[string]int64 // of leases, as written here; nil of a source
}

// patient makes the server wait for the person who is asked, and for a large source.
const patient = "SET LOCAL idle_in_transaction_session_timeout = 0"

// claim makes the agent's row; true when there is one already.
func (d *database) claim(ctx context.Context) (there bool, err error) {
	if _, err := d.tx.Exec(ctx, patient); err != nil {
		return false, unit.Problem(err)
	}
	tag, err := d.tx.Exec(ctx, "INSERT INTO agent(agent_id) VALUES($1) ON CONFLICT DO NOTHING", d.agent)
	if err != nil {
		return false, unit.Problem(err)
	}
	d.tokens = map[string]int64{lease.AgentResource(d.agent): 0, lease.DeliverResource(d.agent): 0}
	return tag.RowsAffected() == 0, nil
}

// hold keeps everybody from the agent until the transaction ends. Leases are locked
// before threads, as everywhere.
func (d *database) hold(ctx context.Context) error {
	if _, err := d.tx.Exec(ctx, patient); err != nil {
		return unit.Problem(err)
	}
	var found, live, works bool
	for _, q := range []struct {
		sql  string
		dest any
	}{
		{"SELECT COUNT(*) > 0 FROM (SELECT 1 FROM agent WHERE agent_id = $1 FOR UPDATE) a", &found},
		{"SELECT COALESCE(bool_or(NOT released AND expires_at > clock_timestamp()), false) FROM (SELECT released, expires_at FROM lease WHERE agent_id = $1 ORDER BY resource FOR UPDATE) l", &live},
		{"SELECT COALESCE(bool_or(thread_id = 'inbox' AND desired = 'started'), false) FROM (SELECT thread_id, desired FROM thread WHERE agent_id = $1 ORDER BY thread_id FOR UPDATE) t", &works},
	} {
		if err := d.tx.QueryRow(ctx, q.sql, d.agent).Scan(q.dest); err != nil {
			return unit.Problem(err)
		}
	}
	switch {
	case !found:
		return fault.New(codes.NotFound, fault.AgentNotFound, "agent '"+d.agent+"' is not in the database", "check the name, and the database that is named")
	case works || live:
		return started(d.agent)
	}
	return nil
}

// read tells every row of the agent, in the order of the format.
func (d *database) read(ctx context.Context, emit func(rows.Row) error) error {
	if err := d.end(ctx); err != nil {
		return err
	}
	if err := d.rows(ctx, "", rows.File, "agent_file WHERE agent_id = $1 AND $2 = ''", emit); err != nil {
		return err
	}
	ids, err := d.tx.Query(ctx, "SELECT thread_id FROM thread WHERE agent_id = $1 ORDER BY thread_id <> 'inbox', thread_id", d.agent)
	if err != nil {
		return unit.Problem(err)
	}
	threads, err := pgx.CollectRows(ids, pgx.RowTo[string])
	if err != nil {
		return unit.Problem(err)
	}
	for _, th := range threads {
		if err := d.rows(ctx, th, rows.Thread, "thread WHERE agent_id = $1 AND thread_id = $2", emit); err != nil {
			return err
		}
		for _, t := range rows.All {
			from := t.Name + " WHERE agent_id = $1 AND thread_id = $2"
			switch {
			case t.Inbox && th != thread.Inbox:
				continue
			case t.Agent:
				from = t.Name + " WHERE agent_id = $1 AND $2 <> ''"
			case t == rows.Progress:
				from = "(" + consumer.Shown + ") x"
			case t == rows.Fence && th == thread.Inbox && d.tokens == nil: // no token is given twice, wherever it was written
				from = `(SELECT resource, MAX(token) AS token FROM (SELECT resource, token FROM fence WHERE agent_id = $1 AND thread_id = $2
					UNION ALL SELECT resource, token FROM lease WHERE agent_id = $1 AND token > 0) x GROUP BY resource) y`
			}
			if err := d.rows(ctx, th, t, from, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *database) rows(ctx context.Context, th string, t *rows.Table, from string, emit func(rows.Row) error) error {
	cols := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		cols[i] = c.Name
		if c.Kind == rows.Bool {
			cols[i] += "::int::bigint"
		}
	}
	sql := "SELECT " + strings.Join(cols, ", ") + " FROM " + from
	if t.Order != "" {
		sql += " ORDER BY " + t.Order
	}
	found, err := d.tx.Query(ctx, sql, d.agent, unit.Stored(th))
	if err != nil {
		return unit.Problem(err)
	}
	defer found.Close()
	for found.Next() {
		dest := t.Dest()
		if err := found.Scan(dest...); err != nil {
			return fmt.Errorf("read %s of %s: %w", t.Name, th, err)
		}
		if err := unit.Restore(dest); err != nil {
			return err
		}
		if err := emit(rows.Row{Thread: th, Table: t, Values: t.Values(dest)}); err != nil {
			return err
		}
	}
	return unit.Problem(found.Err())
}

// put writes a row, soon.
func (d *database) put(ctx context.Context, r rows.Row) error {
	args := []any{d.agent}
	names := "agent_id"
	if r.Table != rows.File && !r.Table.Agent {
		args, names = append(args, unit.Stored(r.Thread)), "agent_id, thread_id"
	}
	for i, v := range r.Values {
		if n, ok := v.(int64); ok && r.Table.Columns[i].Kind == rows.Bool {
			v = n != 0
		}
		args = append(args, unit.Stored(v))
	}
	names += ", " + r.Table.Names()
	switch r.Table {
	case rows.File:
		names, args = names+", version", append(args, agentdir.Version(r.Values[1].([]byte)))
	case rows.Session:
		names, args = names+", key_folded", append(args, unit.Stored(unit.Indexed(strings.ToLower(r.Values[0].(string)))))
	case rows.Fence:
		if res, token := r.Values[0].(string), r.Values[1].(int64); r.Thread == thread.Inbox {
			d.tokens[res] = max(d.tokens[res], token)
		}
	case rows.Progress: // shown until our own consumer acks the next
		names, args = names+", beside", append(args, d.acked)
	case rows.Thread:
		d.acked = r.Values[4].(int64)
		d.ends(r)
	case rows.Event:
		d.ends(r)
	}
	places := make([]string, len(args))
	for i, a := range args {
		places[i] = "$" + strconv.Itoa(i+1)
		switch v := a.(type) {
		case string:
			d.size += len(v)
		case []byte:
			d.size += len(v)
		}
	}
	d.queued.Queue("INSERT INTO "+r.Table.Name+"("+names+") VALUES("+strings.Join(places, ",")+")", args...)
	if d.queued.Len() < maxRows && d.size < maxBytes {
		return nil
	}
	return d.flush(ctx)
}

// ends gives the thread that is over the hash and the time of its last event.
func (d *database) ends(r rows.Row) {
	if r.Table == rows.Event {
		d.last = r
		return
	}
	d.tail()
}

func (d *database) tail() {
	if d.last.Table == nil {
		return
	}
	d.queued.Queue("UPDATE thread SET chain = $3, last_at = $4 WHERE agent_id = $1 AND thread_id = $2",
		d.agent, unit.Stored(d.last.Thread), d.last.Values[7], d.last.Values[1])
	d.last = rows.Row{}
}

func (d *database) flush(ctx context.Context) error {
	err := d.tx.SendBatch(ctx, &d.queued).Close()
	d.queued, d.size = pgx.Batch{}, 0
	return unit.Problem(err)
}

// end writes what follows from the rows that were put.
func (d *database) end(ctx context.Context) error {
	if d.queued.Len() == 0 && d.last.Table == nil {
		return nil
	}
	d.tail()
	d.queued.Queue(`UPDATE delivery d SET run = t.key FROM turn t WHERE d.agent_id = $1 AND t.agent_id = $1 AND t.thread_id = d.thread_id AND t.reply_id = d.event_id AND t.reply_id > 0`, d.agent)
	d.queued.Queue(consumer.Unmoved, d.agent)
	for res, token := range d.tokens {
		d.queued.Queue(`INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at, released)
			VALUES($1, $2, $3, '', '', '', 0, clock_timestamp(), true)
			ON CONFLICT (agent_id, resource) DO UPDATE SET token = GREATEST(lease.token, excluded.token)`, d.agent, res, token) // one of the name was removed
	}
	return d.flush(ctx)
}

// remove forgets the agent; of its leases the tokens stay.
func (d *database) remove(ctx context.Context) error {
	return unit.Problem(agents.RemoveIn(ctx, d.tx, d.agent))
}
