package transfer

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/store/transfer/rows"
	"github.com/theclaw/agents/internal/workdir"
)

// Copies takes agents out of the database of an engine and into it, for backups.
type Copies struct{ db *pgxpool.Pool }

// Of makes it.
func Of(e *postgres.Engine) Copies { return Copies{e.Pool()} }

// Lay makes the directory of an agent of a database in a home where nobody works: a
// copy of one instant, while the agent works on. tokens are the greatest that were granted
// for its leases by then. Errors: AGENT_NOT_FOUND, DATABASE_CORRUPT.
func (c Copies) Lay(ctx context.Context, home *agentdir.Home, agent string, withWorkdir bool) (tokens map[string]uint64, err error) {
	dir, err := home.Agent(agent)
	if err != nil {
		return nil, err
	}
	m := Move{Home: home, Agent: agent, Confirm: func(Report) bool { return true }, live: true}
	scratch, err := m.room()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	err = pgx.BeginTxFunc(ctx, c.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		from := &database{tx: tx, agent: agent}
		if tokens, err = from.granted(ctx); err != nil {
			return err
		}
		if err := m.arrive(ctx, dir, from, scratch, &Report{}); err != nil {
			return err
		}
		if err := exportMedia(ctx, tx, agent, dir.Path); err != nil || !withWorkdir {
			return err
		}
		_, err := exportWorkdir(ctx, tx, agent, dir.Path)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = fault.New(codes.NotFound, fault.AgentNotFound, "agent '"+agent+"' not found", "see 'agentctl list'")
	}
	return tokens, m.unless(err)
}

// granted are the tokens of an agent; store.ErrNotFound when it is not there.
func (d *database) granted(ctx context.Context) (map[string]uint64, error) {
	if _, err := d.tx.Exec(ctx, patient); err != nil {
		return nil, unit.Problem(err)
	}
	var there bool
	if err := d.tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM agent WHERE agent_id = $1)", d.agent).Scan(&there); err != nil {
		return nil, unit.Problem(err)
	}
	if !there {
		return nil, store.ErrNotFound
	}
	found, err := d.tx.Query(ctx, "SELECT resource, token FROM lease WHERE agent_id = $1 AND token > 0", d.agent)
	if err != nil {
		return nil, unit.Problem(err)
	}
	out := map[string]uint64{}
	var resource string
	var token int64
	_, err = pgx.ForEachRow(found, []any{&resource, &token}, func() error {
		out[resource] = max(out[resource], uint64(token))
		return nil
	})
	return out, unit.Problem(err)
}

// Absent answers nil when the database has no agent of the name. Errors: AGENT_EXISTS.
func (c Copies) Absent(ctx context.Context, agent string) error {
	var there bool
	if err := c.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM agent WHERE agent_id = $1)", agent).Scan(&there); err != nil || !there {
		return unit.Problem(err)
	}
	return exists(agent)
}

func exists(agent string) error {
	return fault.New(codes.AlreadyExists, fault.AgentExists, "agent '"+agent+"' exists already",
		"give the restored one another name with --as; or back it up and remove it with 'agentctl rm "+agent+"', then try again")
}

// Put brings agents that lie in a home where nobody works into the database, all of them
// or none; one that is started works as soon as it is there. left says by agent why its
// working directory was not taken. Errors: AGENT_EXISTS, DATABASE_CORRUPT.
func (c Copies) Put(ctx context.Context, home *agentdir.Home, agents []string) (left map[string]string, err error) {
	left = map[string]string{}
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return nil, unit.Problem(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // of one that is committed nothing is taken back
	for _, id := range agents {
		m := Move{Home: home, Agent: id, live: true}
		why, err := m.put(ctx, tx)
		if err != nil {
			return nil, m.unless(err)
		}
		if why != "" {
			left[id] = why
		}
	}
	fault.Point("transfer:before-put")
	if err := tx.Commit(ctx); err != nil {
		return nil, unit.Problem(err)
	}
	return left, nil
}

// put writes the agent, and compares what the database answers.
func (m Move) put(ctx context.Context, tx pgx.Tx) (left string, err error) {
	a, err := m.Home.Load(m.Agent)
	if err != nil {
		return "", err
	}
	scratch, err := m.room()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	from := &directory{home: m.Home, agent: m.Agent, path: a.Path, inbox: a.Inbox(), scratch: scratch, live: true}
	to := &database{tx: tx, agent: m.Agent}
	there, err := to.claim(ctx)
	if err != nil {
		return "", err
	}
	if there {
		return "", exists(m.Agent)
	}
	if _, err := m.same(ctx, from.read, func(row rows.Row) error { return to.put(ctx, row) }, to.read); err != nil {
		return "", err
	}
	if err := to.wake(ctx); err != nil {
		return "", err
	}
	if err := importMedia(ctx, tx, m.Agent, a.Path); err != nil {
		return "", err
	}
	_, left, err = importWorkdir(ctx, tx, m.Agent, a.Workdir(), workdir.Limits{MaxBytes: int64(a.Config.Workdir.MaxMiB) << 20, Ignore: strings.Fields(a.Config.Workdir.Ignore)})
	return left, err
}

// wake lets an agent that shall work be found: one of a home says so by its subscription
// alone until it was first started here.
func (d *database) wake(ctx context.Context) error {
	for _, sql := range []string{
		`UPDATE thread t SET desired = 'started' WHERE agent_id = $1 AND thread_id = 'inbox' AND desired = ''
			AND EXISTS (SELECT 1 FROM subscription s WHERE s.agent_id = $1 AND s.thread_id = 'inbox' AND s.consumer = 'inbox')`,
		"INSERT INTO due(agent_id) SELECT agent_id FROM thread WHERE agent_id = $1 AND thread_id = 'inbox' AND desired = 'started' AND head > acked",
	} {
		if _, err := d.tx.Exec(ctx, sql, d.agent); err != nil {
			return unit.Problem(err)
		}
	}
	return nil
}
