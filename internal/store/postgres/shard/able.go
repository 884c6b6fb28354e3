package shard

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

// Able answers nil when every database can be reached. One that takes connections and
// does not answer within ctx has too much to do, for all registries alike: if each of them
// turned its callers away, nobody would be served by a database that works. One call at a
// time asks.
func (s *Set) Able(ctx context.Context) error {
	s.probe.mu.Lock()
	defer s.probe.mu.Unlock()
	if s.probe.conns == nil {
		s.probe.conns = make([]*pgx.Conn, len(s.pools))
	}
	for i, p := range s.pools {
		conf := p.Config().ConnConfig
		if err := s.probe.ask(ctx, i, conf); err != nil && (!errors.Is(ctx.Err(), context.DeadlineExceeded) || !takes(ctx, conf)) {
			return fmt.Errorf("ask database %d of %d: %w", i+1, len(s.pools), err)
		}
	}
	return nil
}

func (p *probe) ask(ctx context.Context, i int, conf *pgx.ConnConfig) (err error) {
	c := p.conns[i]
	if c == nil || c.IsClosed() {
		if c, err = pgx.ConnectConfig(ctx, conf); err != nil {
			return err
		}
		p.conns[i] = c
	}
	return c.Ping(ctx)
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
