// Package cause owns what an error of SQLite, or of the file system under it, means in
// the storage contract: a damaged file, a full disk, one that cannot be written.
//
// It promises that the error that was is still inside. It decides nothing.
package cause

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
)

// Of maps what SQLite answers to the contract's errors.
func Of(err error) error {
	var done *classified
	var se *conn.Error
	if errors.As(err, &done) || !errors.As(err, &se) {
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
	default:
		return err
	}
	return &classified{kind, err}
}

type classified struct{ kind, err error }

func (c *classified) Error() string   { return c.kind.Error() + ": " + c.err.Error() }
func (c *classified) Unwrap() []error { return []error{c.kind, c.err} }

// Opening is Of for what fails at open, where SQLite says "cannot open"
// or "I/O error" for directories that cannot be written and full disks, too.
func Opening(dir string, err error) error {
	err = Of(err)
	if !errors.Is(err, store.ErrIO) {
		return err
	}
	var fs unix.Statfs_t
	switch {
	case errors.Is(unix.Access(dir, unix.W_OK), unix.EROFS), errors.Is(unix.Access(dir, unix.W_OK), unix.EACCES):
		return &classified{store.ErrReadOnly, err}
	case unix.Statfs(dir, &fs) == nil && fs.Bavail*uint64(fs.Bsize) < 64<<10:
		return &classified{store.ErrDiskFull, err}
	}
	return err
}

// Writable refuses a database that can only be read. SQLite opens such a one when
// its log is still there, and tells at the first write: too late for an agent that
// is to be shown as degraded, and given no work.
func Writable(dir string) error {
	for _, path := range []string{dir, filepath.Join(dir, "events.db")} {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return File(fmt.Errorf("open %s: %w", path, err))
		}
	}
	return nil
}

// File maps what the file system answers to the contract's errors.
func File(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &classified{store.ErrDiskFull, err}
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return &classified{store.ErrReadOnly, err}
	case errors.Is(err, unix.EIO):
		return &classified{store.ErrIO, err}
	}
	return err
}

// Gone says that the database at a path is not the one that was opened.
func Gone(dir string) error {
	return &classified{store.ErrNotFound, errors.New("the database was removed, moved or replaced under " + dir)}
}
