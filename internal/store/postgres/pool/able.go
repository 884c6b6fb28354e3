package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// errTakesNone is of a server that only reads: a standby.
var errTakesNone = errors.New("the server takes no writes")

// Probe asks whether a database can be worked with, by a connection of its own, so that
// the answer does not wait behind the work. It is safe for concurrent use.
type Probe struct {
	conf *pgx.ConnConfig
	mu   sync.Mutex
	conn *pgx.Conn // nil: none yet
}

// NewProbe makes one of a database; it connects when it is first asked.
func NewProbe(p *pgxpool.Pool) *Probe { return &Probe{conf: p.Config().ConnConfig} }

// Able answers nil when the database can be worked with. One that takes connections and
// does not answer within ctx has too much to do, for all registries alike: if each of them
// turned its callers away, nobody would be served by a database that works. One call at a
// time asks.
func (p *Probe) Able(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.conn != nil
	err := p.ask(ctx)
	if err != nil && known && ctx.Err() == nil { // the server may have ended, and be there again
		err = p.ask(ctx)
	}
	switch {
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ctx.Err() // the caller has gone, and nothing was learned
	case err == nil:
		return nil
	case !errors.Is(err, errTakesNone) && ctx.Err() != nil && p.takes(ctx):
		return nil
	}
	return fmt.Errorf("ask database: %w", err)
}

func (p *Probe) ask(ctx context.Context) error {
	if p.conn == nil || p.conn.IsClosed() {
		c, err := pgx.ConnectConfig(ctx, p.conf)
		if err != nil {
			return err
		}
		p.conn = c
	}
	reads := ""
	if err := p.conn.QueryRow(ctx, "SHOW transaction_read_only", pgx.QueryExecModeSimpleProtocol).Scan(&reads); err != nil {
		return err
	}
	if reads == "on" {
		_ = p.conn.Close(ctx) // another server may have this address, or be in its place
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

// takes reports whether the servers of the URL, all of them, take a connection.
func (p *Probe) takes(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takesWithin) // that of the question is over
	defer cancel()
	hosts := append([]*pgconn.FallbackConfig{{Host: p.conf.Host, Port: p.conf.Port}}, p.conf.Fallbacks...)
	for _, h := range hosts {
		network, address := pgconn.NetworkAddress(h.Host, h.Port)
		c, err := p.conf.DialFunc(ctx, network, address)
		if err != nil {
			return false
		}
		if err := c.Close(); err != nil {
			return false
		}
	}
	return true
}

// Close ends the connection.
func (p *Probe) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.conn.Close(ctx)
	p.conn = nil
}
