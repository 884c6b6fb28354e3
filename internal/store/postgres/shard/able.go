package shard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store/postgres/unit"
)

const (
	// silence is how long a database may leave what was sent to it unacknowledged. Its
	// machine has vanished then, or the way to it; what waits there is asked elsewhere.
	silence = 3 * time.Second
	// reach is how long making a connection may take.
	reach = 5 * time.Second
	// linger is how long the answer to a question is waited for when nobody wants it any
	// more. It comes within that, most times; a connection that was left before would be
	// lost with all the statements it has prepared, which cost more than many answers.
	linger = 250 * time.Millisecond
	// takesWithin is how long a server that answers nothing may need to take a connection,
	// which its system does for it.
	takesWithin = time.Second
)

// dialer makes connections that notice when the other side has vanished, also while
// they wait for an answer.
func dialer() *net.Dialer {
	return &net.Dialer{
		Timeout: reach, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence, Interval: time.Second, Count: 3},
		Control: func(network, _ string, c syscall.RawConn) (err error) {
			if network == "unix" {
				return nil
			}
			if failed := c.Control(func(fd uintptr) { err = limitSilence(int(fd), silence) }); failed != nil {
				return failed
			}
			return err
		},
	}
}

// probe is a connection of its own to each database, so that the answer does not wait
// behind the work.
type probe struct {
	mu    sync.Mutex
	conns []*pgx.Conn
}

// errTakesNone is of a server that only reads: a standby.
var errTakesNone = errors.New("the server takes no writes")

// Able asks every database, and answers nil when one of them can be worked with: who is
// turned away finds the others no better anywhere else. What cannot be reached is not Up
// until it is asked again. A database that takes connections and does not answer within
// ctx has too much to do, for all registries alike: if each of them turned its callers
// away, nobody would be served by a database that works. One call at a time asks.
func (s *Set) Able(ctx context.Context) error {
	s.probe.mu.Lock()
	defer s.probe.mu.Unlock()
	if s.probe.conns == nil {
		s.probe.conns = make([]*pgx.Conn, len(s.pools))
	}
	down := make([]error, len(s.pools))
	var all sync.WaitGroup
	for i, p := range s.pools {
		all.Go(func() {
			if err := s.probe.able(ctx, i, p.Config().ConnConfig); err != nil {
				down[i] = fmt.Errorf("ask database %d of %d: %w", i+1, len(s.pools), err)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err() // nobody wants to know, and nothing was learned
	}
	was := *s.down.Swap(&down)
	for i, err := range down {
		if (was[i] != nil) != (err != nil) && s.onDown != nil {
			s.onDown(i, err)
		}
	}
	if slices.Contains(down, nil) {
		return nil
	}
	return errors.Join(down...)
}

// OnDown sets who is told, one change at a time, of a database that cannot be reached any
// more, and, with nil, of one that can be again. It is set before Able is asked.
func (s *Set) OnDown(fn func(place int, err error)) { s.onDown = fn }

// Up are the databases for work on all of them, which shall not wait for one that could
// not be reached when it was last asked (Able); all of them when none could be.
func (s *Set) Up() []*pgxpool.Pool {
	var up []*pgxpool.Pool
	for i, err := range *s.down.Load() {
		if err == nil {
			up = append(up, s.pools[i])
		}
	}
	if up == nil {
		return s.pools
	}
	return up
}

func (p *probe) able(ctx context.Context, i int, conf *pgx.ConnConfig) error {
	known := p.conns[i] != nil
	err := p.ask(ctx, i, conf)
	if err != nil && known && ctx.Err() == nil { // the server may have ended, and be there again
		err = p.ask(ctx, i, conf)
	}
	if err != nil && !errors.Is(err, errTakesNone) && errors.Is(ctx.Err(), context.DeadlineExceeded) && takes(ctx, conf) {
		return nil
	}
	return err
}

func (p *probe) ask(ctx context.Context, i int, conf *pgx.ConnConfig) (err error) {
	c := p.conns[i]
	if c == nil || c.IsClosed() {
		if c, err = pgx.ConnectConfig(ctx, conf); err != nil {
			return err
		}
		p.conns[i] = c
	}
	reads := ""
	if err := c.QueryRow(ctx, "SHOW transaction_read_only", pgx.QueryExecModeSimpleProtocol).Scan(&reads); err != nil {
		return err
	}
	if reads == "on" {
		_ = c.Close(ctx) // another server may have this address, or be in its place
		return errTakesNone
	}
	return nil
}

// writable lets connections be to a server that writes alone. One that was such a server
// and is a standby now is left as soon as it refuses a write: another may be in its place.
func writable(c *pgx.ConnConfig) {
	if c.ValidateConnect == nil { // target_session_attrs is not said, or any
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	keep := c.OnPgError
	c.OnPgError = func(conn *pgconn.PgConn, e *pgconn.PgError) bool {
		return e.Code != unit.OnlyReads && (keep == nil || keep(conn, e))
	}
}

// takes tells whether the servers of a URL, all of them, take a connection.
func takes(ctx context.Context, conf *pgx.ConnConfig) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takesWithin) // that of the question is over
	defer cancel()
	hosts := append([]*pgconn.FallbackConfig{{Host: conf.Host, Port: conf.Port}}, conf.Fallbacks...)
	for _, h := range hosts {
		network, address := pgconn.NetworkAddress(h.Host, h.Port)
		c, err := conf.DialFunc(ctx, network, address)
		if err != nil {
			return false
		}
		if err := c.Close(); err != nil {
			return false
		}
	}
	return true
}

// end closes the connections of the probe.
func (p *probe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if c != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = c.Close(ctx)
			cancel()
		}
	}
	p.conns = nil
}
