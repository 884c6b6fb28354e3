//go:build proof

package powerloss_test

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/ncruces/go-sqlite3"

	"github.com/theclaw/agents/internal/store/sqlite/conn"
)

// wired opens our databases on the simulated disk. Nothing of what the store says
// changes but two things: no shared memory, so that the one connection locks
// alone, and a checkpoint every few pages, so that short runs have some.
func wired(path string) (conn.Conn, error) {
	c, err := sqlite3.Open("file:" + url.PathEscape(path) + "?mode=rw&vfs=" + name)
	if err != nil {
		return nil, err
	}
	if err := c.Exec("PRAGMA locking_mode=EXCLUSIVE; PRAGMA wal_autocheckpoint=20"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &wire{c: c}, nil
}

type wire struct {
	c     *sqlite3.Conn
	stmts []*sqlite3.Stmt
}

func (w *wire) Prepare(sql string) (conn.Stmt, error) {
	s, _, err := w.c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	w.stmts = append(w.stmts, s)
	return statement{w.c, s}, nil
}

func (w *wire) Script(sql string) error { return w.c.Exec(sql) }
func (*wire) KeepLog() error            { return nil }
func (*wire) Memory() int64             { return 0 }

func (w *wire) Close() error {
	for _, s := range w.stmts {
		_ = s.Close() // says again what the step said
	}
	return w.c.Close()
}

type statement struct {
	c *sqlite3.Conn
	s *sqlite3.Stmt
}

func (s statement) Close() error { return s.s.Reset() }

func (s statement) bind(args []any) error {
	var errs []error
	for i, a := range args {
		switch v := a.(type) {
		case nil:
			errs = append(errs, s.s.BindNull(i+1))
		case int:
			errs = append(errs, s.s.BindInt64(i+1, int64(v)))
		case int64:
			errs = append(errs, s.s.BindInt64(i+1, v))
		case bool:
			errs = append(errs, s.s.BindBool(i+1, v))
		case string:
			errs = append(errs, s.s.BindText(i+1, v))
		case *string:
			if v == nil {
				errs = append(errs, s.s.BindNull(i+1))
			} else {
				errs = append(errs, s.s.BindText(i+1, *v))
			}
		case []byte:
			if v == nil {
				errs = append(errs, s.s.BindNull(i+1))
			} else {
				errs = append(errs, s.s.BindBlob(i+1, v))
			}
		default:
			errs = append(errs, fmt.Errorf("argument %d is a %T", i, a))
		}
	}
	return errors.Join(errs...)
}

func (s statement) Exec(args []any) (conn.Result, error) {
	err := s.Each(args, func(func(...any) error) error { return nil })
	return conn.Result{Changes: s.c.Changes(), LastID: s.c.LastInsertRowID()}, err
}

var errFirst = errors.New("the first row is enough")

func (s statement) Row(args, dest []any) (bool, error) {
	err := s.Each(args, func(scan func(...any) error) error {
		if err := scan(dest...); err != nil {
			return err
		}
		return errFirst
	})
	if errors.Is(err, errFirst) {
		return true, nil
	}
	return false, err
}

func (s statement) Each(args []any, fn func(scan func(dest ...any) error) error) error {
	if err := s.bind(args); err != nil {
		return err
	}
	for s.s.Step() {
		if err := fn(s.scan); err != nil {
			_ = s.s.Reset()
			return err
		}
	}
	return errors.Join(s.s.Err(), s.s.Reset())
}

func (s statement) scan(dest ...any) error {
	for i, d := range dest {
		null := s.s.ColumnType(i) == sqlite3.NULL
		switch d := d.(type) {
		case *string:
			*d = s.s.ColumnText(i)
		case **string:
			if *d = nil; !null {
				v := s.s.ColumnText(i)
				*d = &v
			}
		case *[]byte:
			*d = s.s.ColumnBlob(i, nil)
		case **int64:
			if *d = nil; !null {
				v := s.s.ColumnInt64(i)
				*d = &v
			}
		case *int64:
			*d = s.s.ColumnInt64(i)
		case *int:
			*d = s.s.ColumnInt(i)
		case *bool:
			*d = s.s.ColumnBool(i)
		default:
			return fmt.Errorf("there is no way into a %T", d)
		}
	}
	return nil
}
