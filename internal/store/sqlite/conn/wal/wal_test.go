package wal_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the engine

	"github.com/theclaw/agents/internal/store/sqlite/conn/wal"
)

// open opens a database through the file system of the package, or past it.
func open(t *testing.T, path string, ours bool) *sql.DB {
	t.Helper()
	if err := wal.Register(); err != nil {
		t.Fatal(err)
	}
	dsn := "file:" + path
	if ours {
		dsn += "?vfs=" + wal.Name
	}
	d, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	d.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = d.Close() })
	for _, q := range []string{"PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA cache_size=10"} {
		if _, err := d.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func run(t *testing.T, d *sql.DB, q string, args ...any) {
	t.Helper()
	if _, err := d.ExecContext(t.Context(), q, args...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

func sum(t *testing.T, d *sql.DB) string {
	t.Helper()
	var s string
	if err := d.QueryRowContext(t.Context(), "SELECT COUNT(*) || ' ' || COALESCE(SUM(LENGTH(b)), 0) || ' ' || COALESCE(SUM(id), 0) FROM t").Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// What is committed is seen at once by a program that looks past the package, what
// is not is seen by nobody; small transactions, and such as spill out of the cache,
// are written over, rolled back and checkpointed in between.
func TestCommitsAreInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d, other := open(t, path, true), open(t, path, false)
	run(t, d, "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)")
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 120 {
		before := sum(t, other)
		run(t, d, "BEGIN IMMEDIATE")
		for range 1 + r.IntN(4) {
			size := 10 + r.IntN(3000)
			if r.IntN(20) == 0 {
				size = 300 << 10 // more than is held at once, and than the cache has
			}
			run(t, d, "INSERT INTO t(b) VALUES(?)", bytes.Repeat([]byte{byte(i)}, size))
			run(t, d, "UPDATE t SET b = b || x'00' WHERE id = (SELECT MAX(id) FROM t) - ?", r.IntN(5)) // pages written twice
		}
		if got := sum(t, other); got != before {
			t.Fatalf("round %d: %s seen before its commit, want %s", i, got, before)
		}
		if r.IntN(4) == 0 {
			run(t, d, "ROLLBACK")
			if got := sum(t, d); got != before {
				t.Fatalf("round %d: %s after a rollback, want %s", i, got, before)
			}
			continue
		}
		run(t, d, "COMMIT")
		if own, got := sum(t, d), sum(t, other); own != got {
			t.Fatalf("round %d: %s seen, want %s", i, got, own)
		}
		if r.IntN(30) == 0 {
			run(t, d, "DELETE FROM t WHERE id % 2 = 0")
			run(t, d, "PRAGMA wal_checkpoint(TRUNCATE)")
		}
	}
	for _, db := range []*sql.DB{d, other} {
		var ok string
		if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
			t.Fatalf("%s, %v", ok, err)
		}
	}
}

// Killed at any instant: a copy of the files, as another process would find them,
// has exactly what was committed, and each frame up to there is whole.
func TestACopyHasWhatWasCommitted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	d := open(t, path, true)
	run(t, d, "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)")
	for i := range 20 {
		run(t, d, "BEGIN IMMEDIATE")
		run(t, d, "INSERT INTO t(b) VALUES(?)", bytes.Repeat([]byte{1}, 20000))
		at := filepath.Join(dir, fmt.Sprint("copy", i))
		copied(t, path, at)
		run(t, d, "COMMIT")
		copied(t, path, at+"b")
		if got := sum(t, open(t, at, false)); !strings.HasPrefix(got, fmt.Sprint(i, " ")) {
			t.Errorf("copy %d before the commit has %s", i, got)
		}
		if got := sum(t, open(t, at+"b", false)); !strings.HasPrefix(got, fmt.Sprint(i+1, " ")) {
			t.Errorf("copy %d after the commit has %s", i, got)
		}
	}
	b, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	page := int(binary.BigEndian.Uint32(b[8:]))
	if len(b) < 32+20*(page+24) || (len(b)-32)%(page+24) != 0 {
		t.Errorf("the log has %d bytes", len(b))
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A full disk is told before a commit is answered.
func TestAFailedWriteIsTold(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		child(t)
		return
	}
	asChild(t)
}
