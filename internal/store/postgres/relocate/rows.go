package relocate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// table is a table with a column agent_id, and its other columns. The order of its rows
// is that of made, a number that each database gives for itself and that is not copied.
type table struct {
	name    string
	columns []string
	made    string
}

// tables are all that hold rows of an agent: those others refer to first. Leases are made
// anew, due has no agent that is stopped.
func tables(ctx context.Context, tx pgx.Tx) ([]table, error) {
	rows, err := tx.Query(ctx, `SELECT c.table_name::text, c.column_name::text, c.is_identity = 'YES' FROM information_schema.columns c
		WHERE c.table_schema = current_schema() AND c.table_name NOT IN ('lease', 'due', 'moved', 'arriving')
		AND EXISTS (SELECT 1 FROM information_schema.columns a WHERE a.table_schema = c.table_schema AND a.table_name = c.table_name AND a.column_name = 'agent_id')
		ORDER BY c.table_name <> 'agent', c.table_name <> 'thread', c.table_name, c.ordinal_position`)
	if err != nil {
		return nil, unit.Problem(err)
	}
	var out []table
	var name, column string
	var identity bool
	_, err = pgx.ForEachRow(rows, []any{&name, &column, &identity}, func() error {
		if len(out) == 0 || out[len(out)-1].name != name {
			out = append(out, table{name: name})
		}
		t := &out[len(out)-1]
		if identity {
			t.made = column
			return nil
		}
		t.columns = append(t.columns, column)
		return nil
	})
	return out, unit.Problem(err)
}

func (t table) list() string { return quoted(t.columns...) }

func quoted(names ...string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = pgx.Identifier{n}.Sanitize()
	}
	return strings.Join(out, ", ")
}

// rows selects the agent's rows in an order that is the same in every database.
func (t table) rows(agent string) string {
	by := t.list()
	if t.made != "" {
		by = quoted(t.made)
	}
	return "COPY (SELECT " + t.list() + " FROM " + quoted(t.name) + " WHERE agent_id = '" + strings.ReplaceAll(agent, "'", "''") + "' ORDER BY " + by + ") TO STDOUT (FORMAT binary)"
}

// tokens of the two leases.
type tokens struct{ run, deliver int64 }

// patient makes the server wait for the person who is asked, and for a large agent.
const patient = "SET LOCAL idle_in_transaction_session_timeout = 0"

// hold keeps everybody from writing the agent until the transaction ends, and answers its
// tokens; leases of a holder of one's own are nobody's. Leases are locked before threads, as everywhere. What is only added to, under
// the lock of its thread, needs none.
func hold(ctx context.Context, tx pgx.Tx, agent, own string, tables []table) (t tokens, err error) {
	var found, live, works bool
	b := &pgx.Batch{}
	b.Queue(patient)
	b.Queue("SELECT count(*) > 0 FROM (SELECT 1 FROM agent WHERE agent_id = $1 AND NOT EXISTS (SELECT 1 FROM arriving WHERE agent_id = $1) FOR UPDATE) a", agent).
		QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
	b.Queue(`SELECT COALESCE(bool_or(NOT released AND expires_at > clock_timestamp() AND holder <> $4), false),
		COALESCE(max(token) FILTER (WHERE resource = $2), 0), COALESCE(max(token) FILTER (WHERE resource = $3), 0)
		FROM (SELECT * FROM lease WHERE agent_id = $1 ORDER BY resource FOR UPDATE) l`, agent, lease.AgentResource(agent), lease.DeliverResource(agent), own).
		QueryRow(func(row pgx.Row) error { return row.Scan(&live, &t.run, &t.deliver) })
	b.Queue("SELECT COALESCE(bool_or(thread_id = 'inbox' AND desired = 'started'), false) FROM (SELECT thread_id, desired FROM thread WHERE agent_id = $1 ORDER BY thread_id FOR UPDATE) t", agent).
		QueryRow(func(row pgx.Row) error { return row.Scan(&works) })
	for _, t := range tables {
		switch t.name {
		case "agent", "thread", "event", "dedupe", "step":
		default:
			b.Queue("SELECT count(*) FROM (SELECT 1 FROM "+quoted(t.name)+" WHERE agent_id = $1 FOR UPDATE) x", agent)
		}
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return t, unit.Problem(err)
	}
	switch {
	case !found:
		return t, missing(agent)
	case works || live:
		return t, fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+agent+"' is started, or somebody works on it", "run 'agentctl stop "+agent+"' first; start it when it was moved")
	}
	return t, nil
}

// makeRoom makes room at the target, and answers the tokens above which those there begin.
// A copy that a killed move has left is removed.
func makeRoom(ctx context.Context, tx pgx.Tx, agent string, t tokens) (tokens, error) {
	if _, err := tx.Exec(ctx, patient); err != nil {
		return t, unit.Problem(err)
	}
	if err := discardIn(ctx, tx, agent); err != nil {
		return t, err
	}
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM agent WHERE agent_id = $1)", agent).Scan(&there); err != nil {
		return t, unit.Problem(err)
	}
	if there {
		return t, fault.New(codes.AlreadyExists, fault.AgentExists, "another agent '"+agent+"' is in that database", "run 'agentctl fsck' to see both")
	}
	// One of the name was removed here: its tokens are given to nobody again.
	err := tx.QueryRow(ctx, `WITH l AS (DELETE FROM lease WHERE agent_id = $1 RETURNING resource, token)
		SELECT GREATEST($2::bigint, max(token) FILTER (WHERE resource = $4)), GREATEST($3::bigint, max(token) FILTER (WHERE resource = $5)) FROM l`,
		agent, t.run, t.deliver, lease.AgentResource(agent), lease.DeliverResource(agent)).Scan(&t.run, &t.deliver)
	return t, unit.Problem(err)
}

// discard removes a copy that nobody may use; an agent that is there stays.
func discard(ctx context.Context, pool *pgxpool.Pool, agent string) error {
	ctx = context.WithoutCancel(ctx)
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return discardIn(ctx, tx, agent) })
}

func discardIn(ctx context.Context, tx pgx.Tx, agent string) error {
	var staged bool
	if err := tx.QueryRow(ctx, "SELECT count(*) > 0 FROM (SELECT 1 FROM arriving WHERE agent_id = $1 FOR UPDATE) a", agent).Scan(&staged); err != nil || !staged {
		return unit.Problem(err)
	}
	all, err := tables(ctx, tx)
	if err != nil {
		return err
	}
	return remove(ctx, tx, agent, all)
}

// remove forgets the agent, the row last that others refer to.
func remove(ctx context.Context, tx pgx.Tx, agent string, all []table) error {
	b := &pgx.Batch{}
	for i := len(all) - 1; i >= 0; i-- {
		b.Queue("DELETE FROM "+quoted(all[i].name)+" WHERE agent_id = $1", agent)
	}
	b.Queue("DELETE FROM lease WHERE agent_id = $1", agent)
	b.Queue("DELETE FROM due WHERE agent_id = $1", agent)
	return unit.Problem(tx.SendBatch(ctx, b).Close())
}

// copied copies the rows of every table, reads them back and compares.
func copied(ctx context.Context, source, target pgx.Tx, agent string, all []table, r *Report) error {
	sum, back := sha256.New(), sha256.New()
	for _, t := range all {
		n, err := one(ctx, source, target, t, agent, &counted{sum, &r.Bytes})
		if err != nil {
			return fmt.Errorf("copy %s of agent %s: %w", t.name, agent, err)
		}
		r.Rows += n
		if _, err := target.Conn().PgConn().CopyTo(ctx, back, t.rows(agent)); err != nil {
			return fmt.Errorf("read %s of agent %s back: %w", t.name, agent, unit.Problem(err))
		}
		if !bytes.Equal(sum.Sum(nil), back.Sum(nil)) {
			return fault.New(codes.DataLoss, fault.DatabaseCorrupt, fmt.Sprintf("the copy of agent '%s' is not the same: %s", agent, t.name),
				"nothing was changed; run 'agentctl fsck --agent "+agent+"'")
		}
	}
	r.Digest = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// one copies the rows of a table and answers their number.
func one(ctx context.Context, source, target pgx.Tx, t table, agent string, seen io.Writer) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, in := io.Pipe()
	read := make(chan error, 1)
	go func() {
		_, err := source.Conn().PgConn().CopyTo(ctx, io.MultiWriter(in, seen), t.rows(agent))
		_ = in.CloseWithError(err) // never fails
		read <- err
	}()
	tag, err := target.Conn().PgConn().CopyFrom(ctx, out, "COPY "+quoted(t.name)+"("+t.list()+") FROM STDIN (FORMAT binary)")
	_ = out.CloseWithError(err) // never fails
	if from := <-read; from != nil && !errors.Is(from, io.ErrClosedPipe) {
		err = from
	}
	return tag.RowsAffected(), unit.Problem(err)
}

// counted counts what it passes on.
type counted struct {
	hash.Hash
	n *int64
}

func (c *counted) Write(p []byte) (int, error) {
	*c.n += int64(len(p))
	return c.Hash.Write(p)
}

// chains checks every event of the copy and answers how much there is.
func chains(ctx context.Context, pool *pgxpool.Pool, agent string) (threads, events int64, err error) {
	rows, err := pool.Query(ctx, "SELECT thread_id FROM thread WHERE agent_id = $1 ORDER BY thread_id", agent)
	if err != nil {
		return 0, 0, unit.Problem(err)
	}
	ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id string, err error) {
		err = errors.Join(row.Scan(&id), unit.Restore([]any{&id}))
		return id, err
	})
	if err != nil {
		return 0, 0, unit.Problem(err)
	}
	u := unit.New(unit.Options{Pool: pool})
	for _, id := range ids {
		s := &unit.VerifyStep{}
		if err := u.View(ctx, store.Ref{Agent: agent, Thread: id}, s); err != nil {
			if errors.Is(err, store.ErrCorrupt) {
				err = fault.Wrap(fault.New(codes.DataLoss, fault.DatabaseCorrupt, "agent '"+agent+"' has a damaged database", "run 'agentctl fsck --agent "+agent+"'; nothing was changed"), err)
			}
			return 0, 0, err
		}
		threads, events = threads+1, events+s.Out
	}
	return threads, events, nil
}
