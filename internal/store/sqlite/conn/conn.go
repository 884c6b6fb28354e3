package conn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/theclaw/agents/internal/store/sqlite/conn/heap"
	"github.com/theclaw/agents/internal/store/sqlite/conn/wal"
)

// Conn is a connection. It is an interface for the proofs, which run the store
// over an engine whose disk they can cut the power of.
type Conn interface {
	// Prepare compiles one statement, for use again and again.
	Prepare(sql string) (Stmt, error)
	// Script runs statements once, each to its end. A pragma goes here: some take
	// effect when they are compiled, and never again.
	Script(sql string) error
	// KeepLog lets Close leave the write-ahead log where it is.
	KeepLog() error
	// Memory is how many bytes the connection takes; it is not exact.
	Memory() int64
	// Close ends the connection; its statements are closed.
	Close() error
}

// Stmt is a prepared statement. Arguments are int, int64, bool, string, []byte, a
// pointer to a string, or nil; there must be one for each parameter.
type Stmt interface {
	Exec(args []any) (Result, error)
	// Row reads the first row; false when there is none.
	Row(args []any, dest []any) (bool, error)
	// Each calls fn for every row, until it fails.
	Each(args []any, fn func(scan func(dest ...any) error) error) error
	Close() error
}

// Result of a statement that changes rows.
type Result struct{ Changes, LastID int64 }

// Error is what the engine answers.
type Error struct {
	Code int // extended
	Text string
}

func (e *Error) Error() string { return e.Text }

// wait is how long another program's lock is waited for.
const wait = 5 * time.Second

// native is a connection of the engine that is linked in.
type native struct {
	tls   *libc.TLS // what a call runs on; nil outside of calls
	depth int       // of calls
	db    uintptr
	out   uintptr // words that the engine writes results to and reads arguments from

	words words
}

const (
	word     = bits.UintSize / 8
	outWords = 3
)

// Each connection sets memory aside for small pieces (lookaside): lookasideSlots slots of
// lookasideSlot bytes, which the engine divides into large and small ones. The busiest
// database of a message uses 16 pieces at once. The engine's default of 40 slots is 48 KB in
// each of hundreds of connections; this fits into 16 KiB, which the allocator has a size for.
const (
	lookasideSlot  = 1200
	lookasideSlots = 13
)

// ErrMemory reports that the engine could not get memory.
var ErrMemory = errors.New("the engine has no memory")

// Open opens the database at path, which must be there: one that vanished must
// not come back empty.
func Open(path string) (Conn, error) {
	c := &native{}
	c.enter()
	defer c.leave()
	if c.out = libc.Xmalloc(c.tls, types.Size_t(outWords*word)); c.out == 0 {
		return nil, ErrMemory
	}
	if err := wal.Register(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	name, err := libc.CString(path)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	system, err := libc.CString(wal.Name)
	if err != nil {
		c.free(name)
		return nil, errors.Join(err, c.Close())
	}
	rc := sqlite3.Xsqlite3_open_v2(c.tls, name, c.out, sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_NOMUTEX|sqlite3.SQLITE_OPEN_EXRESCODE, system)
	c.free(name)
	c.free(system)
	c.db = c.result(0) // there even after a failure, with its reason
	if rc == sqlite3.SQLITE_OK {
		rc = sqlite3.Xsqlite3_busy_timeout(c.tls, c.db, int32(wait/time.Millisecond))
	}
	if rc == sqlite3.SQLITE_OK {
		// One plan for a statement, whatever its arguments are: else each new LIMIT
		// compiles it again.
		rc = sqlite3.Xsqlite3_db_config(c.tls, c.db, sqlite3.SQLITE_DBCONFIG_ENABLE_QPSG, libc.VaList(c.out, int32(1), uintptr(0)))
	}
	if rc == sqlite3.SQLITE_OK {
		rc = sqlite3.Xsqlite3_db_config(c.tls, c.db, sqlite3.SQLITE_DBCONFIG_LOOKASIDE, libc.VaList(c.out, uintptr(0), int32(lookasideSlot), int32(lookasideSlots)))
	}
	if rc != sqlite3.SQLITE_OK {
		return nil, errors.Join(c.error(rc), c.Close())
	}
	if err := c.boundLog(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// logBytes is about how long a write-ahead log grows before its pages are moved into the
// database; one that is written again meanwhile is moved once. With 1 MiB, the engine's
// default for these pages, 7 % more is written for a message; with 4 MiB a log grows, which
// makes each fsync dearer, for four times as many messages before it is overwritten.
const logBytes = 2 << 20

// boundLog sets it in pages of the database. A file that is no database says so at its first
// use, as it does without this.
func (c *native) boundLog() error {
	page, _, err := c.compile("PRAGMA page_size", 0)
	if err != nil {
		return nil
	}
	defer func() { _ = page.Close() }() // says again what the step said
	var size int
	if ok, err := page.Row(nil, []any{&size}); err != nil || !ok || size <= 0 {
		return nil
	}
	return c.Script(fmt.Sprint("PRAGMA wal_autocheckpoint=", logBytes/size))
}

func (c *native) Close() error {
	if c.out == 0 {
		return nil
	}
	c.enter()
	defer c.leave()
	rc := sqlite3.Xsqlite3_close_v2(c.tls, c.db)
	var err error
	if rc != sqlite3.SQLITE_OK {
		err = c.error(rc)
	}
	c.free(c.out)
	c.out, c.db = 0, 0
	return err
}

func (c *native) KeepLog() error {
	c.enter()
	defer c.leave()
	name, err := libc.CString("main")
	if err != nil {
		return err
	}
	defer c.free(name)
	binary.NativeEndian.PutUint32(libc.GoBytes(c.out, word), 1) // an int
	if rc := sqlite3.Xsqlite3_file_control(c.tls, c.db, name, sqlite3.SQLITE_FCNTL_PERSIST_WAL, c.out); rc != sqlite3.SQLITE_OK {
		return c.error(rc)
	}
	return nil
}

// Memory is how many bytes the connection takes: its pages, its schema, its statements, and
// what each connection has.
func (c *native) Memory() int64 {
	c.enter()
	defer c.leave()
	sum := int64(lookasideSlot*lookasideSlots + ownBytes)
	for _, what := range []int32{sqlite3.SQLITE_DBSTATUS_CACHE_USED, sqlite3.SQLITE_DBSTATUS_SCHEMA_USED, sqlite3.SQLITE_DBSTATUS_STMT_USED} {
		if sqlite3.Xsqlite3_db_status(c.tls, c.db, what, c.out, c.out+uintptr(word), 0) == sqlite3.SQLITE_OK {
			sum += int64(binary.NativeEndian.Uint32(libc.GoBytes(c.out, word)))
		}
	}
	return sum
}

// ownBytes is what a connection takes in addition to what the engine counts: the arguments of its
// statements, its share of the log's index (32 KiB).
const ownBytes = 44 << 10

// Trim returns memory that no connection uses to the system.
func Trim() error {
	dropStacks()
	return heap.Trim()
}

func (c *native) Prepare(sql string) (Stmt, error) {
	c.enter()
	defer c.leave()
	s, tail, err := c.compile(sql, sqlite3.SQLITE_PREPARE_PERSISTENT)
	switch {
	case err != nil:
		return nil, err
	case s == nil || tail != "":
		if s != nil {
			_ = s.Close() // it was not run
		}
		return nil, fmt.Errorf("prepare %.40q: not one statement", sql)
	}
	return s, nil
}

func (c *native) Script(sql string) error {
	c.enter()
	defer c.leave()
	for sql != "" {
		s, tail, err := c.compile(sql, 0)
		if err != nil {
			return err
		}
		if s != nil {
			_, err = s.Exec(nil)
			_ = s.Close() // says again what Exec said
			if err != nil {
				return err
			}
		}
		sql = tail
	}
	return nil
}

// compile makes the first statement of sql and answers what is behind it; there
// is none in white space.
func (c *native) compile(sql string, flags uint32) (*stmt, string, error) {
	text, err := libc.CString(sql)
	if err != nil {
		return nil, "", err
	}
	defer c.free(text)
	if rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, text, int32(len(sql)+1), flags, c.out, c.out+uintptr(word)); rc != sqlite3.SQLITE_OK {
		return nil, "", c.error(rc)
	}
	p, tail := c.result(0), sql[min(int(c.result(1)-text), len(sql)):]
	if p == 0 {
		return nil, tail, nil
	}
	s := &stmt{c: c, p: p, params: int(sqlite3.Xsqlite3_bind_parameter_count(c.tls, p)), columns: int(sqlite3.Xsqlite3_column_count(c.tls, p))}
	s.scan = s.scanRow
	return s, tail, nil
}

func (c *native) free(p uintptr) {
	if p != 0 {
		libc.Xfree(c.tls, p)
	}
}

// result is a word that the engine has written.
func (c *native) result(n int) uintptr {
	b := libc.GoBytes(c.out+uintptr(n*word), word)
	if word == 4 {
		return uintptr(binary.NativeEndian.Uint32(b))
	}
	return uintptr(binary.NativeEndian.Uint64(b))
}

func (c *native) error(rc int32) error {
	kind := libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, rc))
	if c.db != 0 {
		if why := libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db)); why != kind {
			kind += ": " + why
		}
	}
	return &Error{int(rc), fmt.Sprintf("%s (%d)", kind, rc)}
}
