// Package pool opens the connections to the database of an installation: it configures
// each, waits for a database that does not exist yet, migrates its tables, and checks
// whether it can be used.
package pool

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/reference"
)

// conns is the most connections to a database, unless its URL has pool_max_conns.
const conns = 16

// session is how a connection is set up:
//   - the isolation is the one that package unit counts on, whatever the default of the
//     server, the database or the role;
//   - what was acknowledged survives a crash of the server, also where its default is
//     otherwise;
//   - a thread is not held for hours by a registry whose machine has vanished in the
//     middle of a step;
//   - a plan is made once for each statement, because making it costs more than what it
//     does; so it must not be one that is only good for the small table of that moment:
//     what is read is found by an index.
const session = `SELECT set_config(name, value, false) FROM (VALUES
	('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on' ELSE current_setting('synchronous_commit') END),
	('default_transaction_isolation', 'read committed'), ('idle_in_transaction_session_timeout', '15s'),
	('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('jit', 'off')) AS settings(name, value)`

// Open connects to a database, brings it to the newest format and checks that it is the
// only one of its installation. Errors: FORMAT_MISMATCH, CONFIG_INVALID.
func Open(ctx context.Context, url string) (*pgxpool.Pool, error) { return connect(ctx, url, true) }

// Rehearse is Open for a caller that takes back what it writes: an empty database gets its
// tables; one of an older format is refused, because those who serve it may not know the
// newest.
func Rehearse(ctx context.Context, url string) (*pgxpool.Pool, error) {
	return connect(ctx, url, false)
}

func connect(ctx context.Context, url string, keep bool) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The text of the error may hold the URL, and that a password.
		return nil, fault.New(codes.FailedPrecondition, fault.ConfigInvalid, "the URL of the database cannot be read", "write postgres://user@host:5432/name")
	}
	if !strings.Contains(url, "pool_max_conns") {
		c.MaxConns = conns
	}
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "theclaw"
	}
	c.ConnConfig.DialFunc = dialer().DialContext
	if c.ConnConfig.ConnectTimeout == 0 || c.ConnConfig.ConnectTimeout > reach {
		c.ConnConfig.ConnectTimeout = reach
	}
	c.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn(), DeadlineDelay: linger}
	}
	writable(c.ConnConfig)
	c.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, session, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	p, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := p.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		if _, err := migrate(ctx, c.Conn(), keep); err != nil {
			return err
		}
		return only(ctx, c.Conn(), keep)
	}); err != nil {
		p.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	return p, nil
}

// only refuses a database that is one of several: builds before this one spread the agents
// of an installation over a list of databases, in which each had its place. keep records
// in a new database that it is alone, so that those builds give it no place in a list.
func only(ctx context.Context, c *pgx.Conn, keep bool) error {
	if keep {
		if _, err := c.Exec(ctx, "INSERT INTO shard(one, index, count) VALUES(1, 0, 1) ON CONFLICT (one) DO NOTHING"); err != nil {
			return fmt.Errorf("record that the database is the only one: %w", err)
		}
	}
	var place, of, moved int
	if err := c.QueryRow(ctx, `SELECT COALESCE((SELECT index FROM shard), 0), COALESCE((SELECT count FROM shard), 1),
		(SELECT count(*) FROM moved) + (SELECT count(*) FROM arriving)`).Scan(&place, &of, &moved); err != nil {
		return fmt.Errorf("read whether the database is the only one: %w", err)
	}
	switch {
	case of > 1:
		return fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
			fmt.Sprintf("the database was number %d of %d of an installation, and the others may hold agents", place+1, of), reference.Gather)
	case moved > 0:
		return fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
			fmt.Sprintf("the database was one of several: %d agents were moved to another one, or have not arrived in this one", moved), reference.Gather)
	}
	return nil
}
