package db

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
)

// mapError maps an error of SQLite to the error of the storage contract: a damaged file, a
// full disk, a file that cannot be written, no memory. The result wraps err.
func mapError(err error) error {
	var done *classifiedError
	var se *conn.Error
	if errors.As(err, &done) {
		return err
	}
	if errors.Is(err, conn.ErrMemory) {
		return &classifiedError{store.ErrNoMemory, err}
	}
	if !errors.As(err, &se) {
		return err
	}
	var kind error
	switch se.Code & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		kind = store.ErrCorrupt
	case sqlite3.SQLITE_FULL:
		kind = store.ErrDiskFull
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		kind = store.ErrReadOnly
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		kind = store.ErrIO
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		kind = store.ErrBusy
	case sqlite3.SQLITE_NOMEM:
		kind = store.ErrNoMemory
	default:
		return err
	}
	return &classifiedError{kind, err}
}

type classifiedError struct{ kind, err error }

func (c *classifiedError) Error() string   { return c.kind.Error() + ": " + c.err.Error() }
func (c *classifiedError) Unwrap() []error { return []error{c.kind, c.err} }

// openError is mapError for a failure at open, where SQLite returns "cannot open"
// or "I/O error" also for directories that cannot be written and for full disks.
func openError(dir string, err error) error {
	err = mapError(err)
	if !errors.Is(err, store.ErrIO) {
		return err
	}
	var fs unix.Statfs_t
	switch {
	case errors.Is(unix.Access(dir, unix.W_OK), unix.EROFS), errors.Is(unix.Access(dir, unix.W_OK), unix.EACCES):
		return &classifiedError{store.ErrReadOnly, err}
	case unix.Statfs(dir, &fs) == nil && fs.Bavail*uint64(fs.Bsize) < 64<<10:
		return &classifiedError{store.ErrDiskFull, err}
	}
	return err
}

// checkWritable refuses a database that can only be read. SQLite opens such a one when
// its log is still there, and fails at the first write: too late for an agent that
// must be reported as degraded and get no work.
func checkWritable(dir string) error {
	for _, path := range []string{dir, filepath.Join(dir, "events.db")} {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return FileError(fmt.Errorf("open %s: %w", path, err))
		}
	}
	return nil
}

// FileError maps an error of the file system to the error of the storage contract.
func FileError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &classifiedError{store.ErrDiskFull, err}
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return &classifiedError{store.ErrReadOnly, err}
	case errors.Is(err, unix.EIO):
		return &classifiedError{store.ErrIO, err}
	}
	return err
}

// goneError says that the database at a path is not the one that was opened.
func goneError(dir string) error {
	return &classifiedError{store.ErrNotFound, errors.New("the database was removed, moved or replaced under " + dir)}
}
