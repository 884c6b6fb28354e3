// Package snapshot copies a database while others write to it.
//
// The copy is made with VACUUM INTO on a connection of its own. That is one read
// transaction: it sees one committed state, the WAL included, and stops no
// writer, neither the owner's nor another program's. SQLite's backup API would
// copy free pages too and starts again with every commit of another connection,
// so that it might never end under load; and in the worker of package db a copy
// would hold up all messages of the thread while it lasts. VACUUM walks every
// row, so a damaged database is noticed here and not at the restore.
//
// It does not look at what is copied.
package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/theclaw/agents/internal/store"
)

// Copy writes the thread at dir, as it is now, to the file to, which must not
// exist; its mode is 0600. It is not synced. Errors: store.ErrNotFound,
// ErrCorrupt.
func Copy(ctx context.Context, dir, to string) (err error) {
	path := filepath.Join(dir, "events.db")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("copy %s: %w", dir, store.ErrNotFound)
	}
	// The copy is made under a mode of ours, whatever the umask.
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make copy: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("make copy: %w", err)
	}
	// Read and write: the one who opens a database after a crash recovers its WAL.
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=rw&_pragma=busy_timeout(5000)"}).String()
	s, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	s.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return fmt.Errorf("copy database: %w", known(ctx, err))
	}
	return nil
}

func known(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return errors.Join(store.ErrCorrupt, err)
		case sqlite3.SQLITE_FULL:
			return errors.Join(store.ErrDiskFull, err)
		case sqlite3.SQLITE_INTERRUPT:
			return errors.Join(ctx.Err(), err)
		}
	}
	return err
}
