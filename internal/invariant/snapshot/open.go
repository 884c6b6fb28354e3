package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Open opens a database read-only, at one state for all queries until closed.
// Unless live, a file without a write-ahead log is opened as immutable: that
// leaves no side file behind and needs no write permission.
func Open(ctx context.Context, path string, live bool) (*sql.Conn, func(), error) {
	query := "mode=ro&_pragma=busy_timeout(5000)"
	if _, err := os.Stat(path + "-wal"); !live && errors.Is(err, os.ErrNotExist) {
		query += "&immutable=1"
	}
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query}).String()
	s, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, nil, err
	}
	s.SetMaxOpenConns(1)
	c, err := s.Conn(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return nil, nil, errors.Join(err, c.Close(), s.Close())
	}
	return c, func() {
		_, _ = c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // it only read
		_ = c.Close()
		_ = s.Close()
	}, nil
}

// Corrupt reports whether SQLite says that a file is damaged.
func Corrupt(err error) bool {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return false
	}
	code := se.Code() & 0xff
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

func noTable(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code()&0xff == sqlite3.SQLITE_ERROR
}
