// Package shard owns which of several databases an agent is in, and the connections
// to them.
//
//	agent_id --sha256--> number --mod count--> index --> database --moved--> database
//
// The mapping is fixed for good when a database is first opened: it keeps its own
// index and the count, and a list in another order or of another length is refused
// before anything is read. With one database there is nothing to choose.
//
// An agent that was moved (package relocate) is where the rows of moved lead to, from
// the database that its id hashes to. Those are known from the start; one that is moved
// meanwhile is not found where it was, and only then looked for. Nothing is lost by what
// is believed of an old place: nothing can be written there.
package shard

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/schema"
)

// Set is the databases of one installation.
type Set struct {
	pools []*pgxpool.Pool
	probe probe
	// down is what Able found, by place; onDown is told of each change.
	down   atomic.Pointer[[]error]
	onDown func(place int, err error)

	mu     sync.Mutex                     // of who changes places
	places atomic.Pointer[map[string]int] // agents that are elsewhere than their ids hash to
	moved  func(agent string)
}

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

// Open connects to databases, brings each to the newest format and checks that it is
// the one of its place in the list. Errors: FORMAT_MISMATCH, CONFIG_INVALID.
func Open(ctx context.Context, urls []string) (*Set, error) { return open(ctx, urls, nil, true) }

// Rehearse is Open for whoever will take back what he writes: an empty database gets its
// tables, and no place in a list yet; one of an older format is refused, for those who
// serve it may not know the newest.
func Rehearse(ctx context.Context, urls []string) (*Set, error) { return open(ctx, urls, nil, false) }

// Await is Open for whoever may have been started before its databases, or while one
// takes over from another: it tries again for a minute. absent, when set, is told of each
// database that is waited for, once. Errors also: REGISTRY_UNAVAILABLE.
func Await(ctx context.Context, urls []string, absent func(error)) (*Set, error) {
	return open(ctx, urls, absent, true)
}

func open(ctx context.Context, urls []string, absent func(error), keep bool) (*Set, error) {
	s := &Set{}
	s.places.Store(&map[string]int{})
	if len(urls) == 0 {
		return nil, fault.New(codes.FailedPrecondition, fault.ConfigInvalid, "no database is named", "set storage.dsns to one URL or more")
	}
	for i, url := range urls {
		p, err := patient(ctx, absent, func() (*pgxpool.Pool, error) {
			p, err := connect(ctx, url, i, len(urls), keep)
			if err != nil {
				err = fmt.Errorf("open database %d of %d: %w", i+1, len(urls), err)
			}
			return p, err
		})
		if err != nil {
			s.Close()
			return nil, err
		}
		s.pools = append(s.pools, p)
	}
	up := make([]error, len(s.pools)) // all of them: they have just answered
	s.down.Store(&up)
	if err := s.Load(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func connect(ctx context.Context, url string, index, count int, keep bool) (*pgxpool.Pool, error) {
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
		return nil, err
	}
	if err := p.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		migrate := schema.Migrate
		if !keep {
			migrate = schema.Make
		}
		if _, err := migrate(ctx, c.Conn()); err != nil {
			return err
		}
		return place(ctx, c.Conn(), index, count, keep)
	}); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// place gives a new database its place, when that is to be kept, and checks that of another.
func place(ctx context.Context, c *pgx.Conn, index, count int, keep bool) error {
	if keep {
		if _, err := c.Exec(ctx, "INSERT INTO shard(one, index, count) VALUES(1, $1, $2) ON CONFLICT (one) DO NOTHING", index, count); err != nil {
			return fmt.Errorf("give database its place: %w", err)
		}
	}
	var i, n int
	if err := c.QueryRow(ctx, "SELECT index, count FROM shard").Scan(&i, &n); errors.Is(err, pgx.ErrNoRows) && !keep {
		return nil
	} else if err != nil {
		return fmt.Errorf("read place of database: %w", err)
	}
	if i != index || n != count {
		return fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
			fmt.Sprintf("the database is number %d of %d, and the list has it as number %d of %d", i+1, n, index+1, count),
			"give storage.dsns the databases in the order in which they were set up")
	}
	return nil
}

// Index is the place of an agent among count databases, unless it was moved.
func Index(agent string, count int) int {
	sum := sha256.Sum256([]byte(agent))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(count))
}

// All are the databases in their order.
func (s *Set) All() []*pgxpool.Pool { return s.pools }

// Close ends all connections; transactions under way are finished first.
func (s *Set) Close() {
	s.probe.end()
	for _, p := range s.pools {
		p.Close()
	}
}
