package conn

import (
	"errors"
	"fmt"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"
)

// kept is how much memory for arguments a statement keeps between two uses.
const kept = 64 << 10

type stmt struct {
	c               *native
	p               uintptr
	params, columns int
	scan            func(...any) error

	running bool
	buf     uintptr // the bytes of the arguments
	size    int
}

var (
	errRunning = errors.New("the statement is running")
	errMissing = errors.New("the statement has more parameters than arguments")
)

func (s *stmt) Close() error {
	s.c.enter()
	defer s.c.leave()
	rc := sqlite3.Xsqlite3_finalize(s.c.tls, s.p)
	s.c.free(s.buf)
	s.p, s.buf, s.size = 0, 0, 0
	if rc != sqlite3.SQLITE_OK {
		return s.c.error(rc)
	}
	return nil
}

func (s *stmt) Exec(args []any) (Result, error) {
	if err := s.begin(args); err != nil {
		return Result{}, err
	}
	defer s.end()
	for {
		switch rc := sqlite3.Xsqlite3_step(s.c.tls, s.p); rc {
		case sqlite3.SQLITE_ROW:
		case sqlite3.SQLITE_DONE:
			return Result{sqlite3.Xsqlite3_changes64(s.c.tls, s.c.db), sqlite3.Xsqlite3_last_insert_rowid(s.c.tls, s.c.db)}, nil
		default:
			return Result{}, s.c.error(rc)
		}
	}
}

func (s *stmt) Row(args, dest []any) (bool, error) {
	if err := s.begin(args); err != nil {
		return false, err
	}
	defer s.end()
	ok, err := s.next()
	if !ok || err != nil {
		return false, err
	}
	return true, s.scanRow(dest...)
}

func (s *stmt) Each(args []any, fn func(scan func(dest ...any) error) error) error {
	if err := s.begin(args); err != nil {
		return err
	}
	defer s.end() // also when fn panics
	for {
		ok, err := s.next()
		if !ok || err != nil {
			return err
		}
		if err := fn(s.scan); err != nil {
			return err
		}
	}
}

func (s *stmt) next() (bool, error) {
	switch rc := sqlite3.Xsqlite3_step(s.c.tls, s.p); rc {
	case sqlite3.SQLITE_ROW:
		return true, nil
	case sqlite3.SQLITE_DONE:
		return false, nil
	default:
		return false, s.c.error(rc)
	}
}

func (s *stmt) begin(args []any) error {
	if s.running {
		return errRunning
	}
	if len(args) < s.params {
		return errMissing
	}
	s.c.enter()
	if err := s.arguments(args[:s.params]); err != nil {
		s.c.leave()
		return err
	}
	s.running = true
	return nil
}

func (s *stmt) arguments(args []any) error {
	if err := s.reserve(args); err != nil {
		return err
	}
	at := s.buf
	for i, a := range args {
		rc, err := s.bind(int32(i+1), a, &at)
		if err == nil && rc != sqlite3.SQLITE_OK {
			err = s.c.error(rc)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end makes the statement ready for its next use. What went wrong was told by the
// step; reset only says it again.
func (s *stmt) end() {
	sqlite3.Xsqlite3_reset(s.c.tls, s.p)
	s.running = false
	if s.size > kept {
		sqlite3.Xsqlite3_clear_bindings(s.c.tls, s.p)
		s.c.free(s.buf)
		s.buf, s.size = 0, 0
	}
	s.c.leave()
}

// reserve makes room for the bytes of the arguments in one piece.
func (s *stmt) reserve(args []any) error {
	need := 1 // an empty text is at an address, too
	for _, a := range args {
		switch v := a.(type) {
		case string:
			need += len(v)
		case *string:
			if v != nil {
				need += len(*v)
			}
		case []byte:
			need += len(v)
		}
	}
	if need <= s.size {
		return nil
	}
	need = max(need, 256)
	s.c.free(s.buf) // every parameter is bound afresh before the engine looks
	if s.buf, s.size = libc.Xmalloc(s.c.tls, types.Size_t(need)), need; s.buf == 0 {
		s.size = 0
		return ErrMemory
	}
	return nil
}

func (s *stmt) bind(i int32, a any, at *uintptr) (int32, error) {
	tls := s.c.tls
	switch v := a.(type) {
	case nil:
		return sqlite3.Xsqlite3_bind_null(tls, s.p, i), nil
	case int:
		return sqlite3.Xsqlite3_bind_int64(tls, s.p, i, int64(v)), nil
	case int64:
		return sqlite3.Xsqlite3_bind_int64(tls, s.p, i, v), nil
	case bool:
		n := int64(0)
		if v {
			n = 1
		}
		return sqlite3.Xsqlite3_bind_int64(tls, s.p, i, n), nil
	case string:
		return s.bindText(i, v, at), nil
	case *string:
		if v == nil {
			return sqlite3.Xsqlite3_bind_null(tls, s.p, i), nil
		}
		return s.bindText(i, *v, at), nil
	case []byte:
		if v == nil {
			return sqlite3.Xsqlite3_bind_null(tls, s.p, i), nil
		}
		p := *at
		copy(libc.GoBytes(p, len(v)), v)
		*at += uintptr(len(v))
		return sqlite3.Xsqlite3_bind_blob(tls, s.p, i, p, int32(len(v)), 0), nil
	}
	return 0, fmt.Errorf("argument %d is a %T", i, a)
}

func (s *stmt) bindText(i int32, v string, at *uintptr) int32 {
	p := *at
	copy(libc.GoBytes(p, len(v)), v)
	*at += uintptr(len(v))
	return sqlite3.Xsqlite3_bind_text(s.c.tls, s.p, i, p, int32(len(v)), 0)
}

// scanRow reads the row the statement stands on.
func (s *stmt) scanRow(dest ...any) error {
	if len(dest) != s.columns {
		return fmt.Errorf("scan %d columns into %d places", s.columns, len(dest))
	}
	for i, d := range dest {
		if err := s.column(int32(i), d); err != nil {
			return fmt.Errorf("scan column %d: %w", i, err)
		}
	}
	return nil
}

func (s *stmt) column(i int32, dest any) error {
	kind := sqlite3.Xsqlite3_column_type(s.c.tls, s.p, i)
	null := kind == sqlite3.SQLITE_NULL
	switch d := dest.(type) {
	case *string:
		if null {
			return errNull
		}
		*d = s.text(i)
		return nil
	case **string:
		*d = nil
		if !null {
			v := s.text(i)
			*d = &v
		}
		return nil
	case *[]byte:
		*d = nil
		if !null {
			*d = s.bytes(i)
		}
		return nil
	case **int64:
		*d = nil
		if null {
			return nil
		}
		v, err := s.number(i, kind)
		*d = &v
		return err
	case *int64:
		v, err := s.number(i, kind)
		*d = v
		return err
	case *int:
		v, err := s.number(i, kind)
		*d = int(v)
		return err
	case *bool:
		v, err := s.number(i, kind)
		*d = v != 0
		return err
	}
	return fmt.Errorf("there is no way into a %T", dest)
}

var (
	errNull   = errors.New("it is null")
	errNumber = errors.New("it is not an integer")
)

func (s *stmt) number(i, kind int32) (int64, error) {
	switch kind {
	case sqlite3.SQLITE_INTEGER:
		return sqlite3.Xsqlite3_column_int64(s.c.tls, s.p, i), nil
	case sqlite3.SQLITE_NULL:
		return 0, errNull
	}
	return 0, errNumber
}

func (s *stmt) text(i int32) string {
	p := sqlite3.Xsqlite3_column_text(s.c.tls, s.p, i)
	if p == 0 {
		return ""
	}
	return s.c.words.get(libc.GoBytes(p, int(sqlite3.Xsqlite3_column_bytes(s.c.tls, s.p, i))))
}

func (s *stmt) bytes(i int32) []byte {
	p := sqlite3.Xsqlite3_column_blob(s.c.tls, s.p, i)
	if p == 0 {
		return nil
	}
	return append([]byte(nil), libc.GoBytes(p, int(sqlite3.Xsqlite3_column_bytes(s.c.tls, s.p, i)))...)
}
