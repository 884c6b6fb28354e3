package unit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/theclaw/agents/internal/store"
)

type pgconnTag = pgconn.CommandTag

// Problem gives an error of the server the name that the contract has for it, for the
// rooms whose tables belong to no thread.
func Problem(err error) error { return problem(err) }

// IsForeignKey tells that a row names another that is not there: its agent is gone.
func IsForeignKey(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23503"
}

// problem gives an error of the server the name that the contract has for it. What
// the contract itself answered passes as it is, and so does the end of a context.
func problem(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return lost(err)
	}
	switch pg.Code[:2] {
	case "08", "57", "58": // connection, operator intervention, system error
		return fmt.Errorf("%w: %w", store.ErrIO, err)
	case "53": // insufficient resources
		if pg.Code == "53100" {
			return fmt.Errorf("%w: %w", store.ErrDiskFull, err)
		}
		return fmt.Errorf("%w: %w", store.ErrBusy, err)
	case "40", "55": // serialization, deadlock, lock not available
		return fmt.Errorf("%w: %w", store.ErrBusy, err)
	case "25": // in a failed or a read-only transaction
		if pg.Code == "25006" {
			return fmt.Errorf("%w: %w", store.ErrReadOnly, err)
		}
	case "XX": // data corrupted, internal
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return err
}

// lost tells an error of the connection from one of the contract.
func lost(err error) error {
	var connect *pgconn.ConnectError
	var net net.Error
	if errors.As(err, &connect) || errors.As(err, &net) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || pgconn.SafeToRetry(err) {
		return fmt.Errorf("%w: %w", store.ErrIO, err)
	}
	return err
}
