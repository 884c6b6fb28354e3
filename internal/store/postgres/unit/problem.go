package unit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/theclaw/agents/internal/store"
)

// Problem gives an error of the server or of the way to it the name that the contract
// has for it, for the packages whose tables belong to no thread. They hold no connection
// to ask whether it has ended, so that is read from the error.
func Problem(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return problem(context.Background(), err, cut(err))
}

// cut reports that a connection could not be made or has ended.
func cut(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}

// problem gives an error of the server or of the way to it the name that the contract
// has for it. What the contract itself answered passes as it is, and so does the end of
// the caller's context. dead tells that the connection has ended with it.
func problem(ctx context.Context, err error, dead bool) error {
	if ctx.Err() != nil {
		return err
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if dead {
			return fmt.Errorf("%w: %w", store.ErrIO, err)
		}
		return err
	}
	if name := named(pg.Code); name != nil {
		return fmt.Errorf("%w: %w", name, err)
	}
	return err
}

// OnlyReads is the SQLSTATE of a write to a server that takes none, such as a standby.
const OnlyReads = "25006"

// named is the contract's error for a SQLSTATE.
func named(code string) error {
	switch code {
	case "53100":
		return store.ErrDiskFull
	case "53200":
		return store.ErrNoMemory
	case OnlyReads: // its connections are given up (package pool)
		return store.ErrIO
	case "57014": // a timeout of the server
		return store.ErrBusy
	case "23503": // the agent or the thread is being removed
		return store.ErrNotFound
	case "XX001", "XX002": // data or index corrupted
		return store.ErrCorrupt
	}
	switch code[:2] {
	case "08", "57", "58": // connection, operator intervention, system error
		return store.ErrIO
	case "53", "40", "55": // resources, serialization, deadlock, lock not available
		return store.ErrBusy
	}
	return nil
}
