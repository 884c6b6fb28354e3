package wal

import (
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"

	"modernc.org/libc"
	_ "modernc.org/sqlite" // the engine
)

// A transaction of any number of pages is two writes to the log: all that is below
// the last page, and that. There were two for each page.
func TestWritesOfATransaction(t *testing.T) {
	if err := Register(); err != nil {
		t.Fatal(err)
	}
	d, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "x.db")+"?vfs="+Name)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.SetMaxOpenConns(1)
	exec := func(q string, args ...any) {
		t.Helper()
		if _, err := d.ExecContext(t.Context(), q, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("PRAGMA journal_mode=WAL")
	for i := range 8 {
		exec("CREATE TABLE t" + string(rune('a'+i)) + "(b)")
	}
	real := function[moveFunc](plain.FxWrite)
	defer func() { plain.FxWrite = pointer(real) }()
	var writes atomic.Int64
	count := func(tls *libc.TLS, file, p uintptr, n int32, to int64) int32 {
		writes.Add(1)
		return real(tls, file, p, n, to)
	}
	plain.FxWrite = pointer(count)
	for pages := 1; pages <= 8; pages++ {
		exec("BEGIN IMMEDIATE")
		for i := range pages {
			exec("INSERT INTO t"+string(rune('a'+i))+" VALUES(?)", "a row")
		}
		writes.Store(0)
		exec("COMMIT")
		if n := writes.Load(); n != 2 {
			t.Errorf("%d pages were %d writes, want 2", pages, n)
		}
	}
}
