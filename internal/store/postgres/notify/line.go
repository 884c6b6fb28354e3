package notify

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// line is a connection that says and hears at the same time. A server wakes no process to
// tell a session what that session has said itself: said on another connection than the
// one that listens, each change would wake its own registry too.
type line struct {
	conn  net.Conn
	front *pgproto3.Frontend

	mu      sync.Mutex
	stopped bool
}

// dial makes a line that listens.
func dial(ctx context.Context, config *pgconn.Config) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config = config.Copy()
	config.RuntimeParams["standard_conforming_strings"] = "on" // as say quotes
	c, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err = c.Exec(ctx, "LISTEN "+channel).ReadAll(); err == nil {
		err = c.SyncConn(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	h, err := c.Hijack()
	if err != nil {
		return nil, err
	}
	return &line{conn: h.Conn, front: pgproto3.NewFrontend(h.Conn, h.Conn)}, nil
}

// hear calls on for whatever is told, and answered for each say, until the line breaks.
func (l *line) hear(answered func(error), on func(payload string)) error {
	var failed error
	for {
		m, err := l.front.Receive()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *pgproto3.NotificationResponse:
			on(m.Payload)
		case *pgproto3.ErrorResponse:
			failed = pgconn.ErrorResponseToPgError(m)
			if m.SeverityUnlocalized == "FATAL" {
				return failed
			}
		case *pgproto3.ReadyForQuery:
			l.until(time.Time{})
			answered(failed)
			failed = nil
		}
	}
}

// say says a payload, one after the other's answer. So little fits into the connection's
// buffer, and nothing is waited for; where it cannot be said, hear ends.
func (l *line) say(payload string) {
	l.until(time.Now().Add(patience)) // it is answered
	l.front.SendQuery(&pgproto3.Query{String: "NOTIFY " + channel + ", '" + strings.ReplaceAll(payload, "'", "''") + "'"})
	if l.front.Flush() != nil {
		l.stop()
	}
}

// until sets the time at which hear ends.
func (l *line) until(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		_ = l.conn.SetDeadline(t)
	}
}

// stop ends hear, also where something is being said.
func (l *line) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	_ = l.conn.SetDeadline(time.Unix(1, 0))
}

// bye closes the line.
func (l *line) bye() {
	_ = l.conn.SetDeadline(time.Now().Add(time.Second))
	l.front.Send(&pgproto3.Terminate{})
	_ = l.front.Flush()
	_ = l.conn.Close()
}
