package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/testing/need"
)

// The external tool writes whenever it likes: nobody sees an error.
func TestForeignWriterBesideUs(t *testing.T) {
	dir := fresh(t)
	d, f := open(t, dir, Options{}), foreign(t, dir)
	done := make(chan error)
	const each = 200
	go func() {
		for range each {
			if _, err := f.Exec("INSERT INTO events(source, type, content) VALUES('s','message','foreign')"); err != nil {
				done <- err
				return
			}
			if _, err := f.Exec("INSERT INTO consumer_progress VALUES('c', 1, '') ON CONFLICT DO UPDATE SET last_acked_id = last_acked_id + 1"); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := range each {
		must(t, d.Do(t.Context(), i%2 == 0, insert("ours")))
	}
	must(t, <-done)
	must(t, d.Do(t.Context(), true, insert("last")))
	if n, err := verify(d); err != nil || n != 2*each+1 || count(t, d) != 2*each+1 {
		t.Errorf("chain of %d: %v", n, err)
	}
}

// A writer that holds the lock is waited for, 5 s long; then the operation fails
// and nothing else does.
func TestForeignLock(t *testing.T) {
	dir := fresh(t)
	d, f := open(t, dir, Options{}), foreign(t, dir)
	c, err := f.Conn(t.Context())
	must(t, err)
	lock := func(q string) { _, err := c.ExecContext(context.Background(), q); must(t, err) }
	lock("BEGIN IMMEDIATE")
	done := make(chan error)
	go func() { done <- d.Do(context.Background(), true, insert("waits")) }()
	lock("COMMIT")
	must(t, <-done)
	lock("BEGIN IMMEDIATE")
	if err := d.Do(t.Context(), true, insert("gives up")); !errors.Is(err, store.ErrBusy) {
		t.Errorf("locked for good: %v", err)
	}
	if n := count(t, d); n != 1 { // readers do not care
		t.Errorf("%d events", n)
	}
	lock("ROLLBACK")
	must(t, d.Do(t.Context(), true, insert("again")))
	must(t, c.Close())
	if n := count(t, d); n != 2 || d.Broken() != nil {
		t.Errorf("%d events, broken: %v", n, d.Broken())
	}
}

// A commit into a file without a name would be lost without an error.
func TestDirectoryTakenAway(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"moved":    func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"replaced": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700), createAt(dir)) },
	} {
		dir := filepath.Join(t.TempDir(), "thread")
		_, err := Create(dir)
		must(t, err)
		d := open(t, dir, Options{})
		must(t, d.Do(t.Context(), true, insert("1")))
		must(t, take(dir))
		for range 2 {
			if err := d.Do(t.Context(), true, insert("2")); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if name != "replaced" {
			_ = d.Close()
			continue
		}
		// Our end takes nothing from the one that has the name now.
		next := open(t, dir, Options{})
		must(t, next.Do(t.Context(), true, insert("theirs")))
		_ = d.Close()
		if _, err := os.Stat(filepath.Join(dir, "events.db-wal")); err != nil {
			t.Errorf("the new database lost its log: %v", err)
		}
		if n, err := verify(next); n != 1 || err != nil {
			t.Errorf("the new database: %d, %v", n, err)
		}
	}
}

func createAt(dir string) error { _, err := Create(dir); return err }

// RELIABILITY 5, disk full: the transaction aborts whole, and work resumes by
// itself once there is space.
func TestDiskFull(t *testing.T) {
	root := need.Disk(t, "size=1m")
	dir := filepath.Join(root, "thread")
	_, err := Create(dir)
	must(t, err)
	d, err := Open(t.Context(), dir, Options{})
	must(t, err)
	defer func() { _ = d.Close() }()
	must(t, d.Do(t.Context(), true, insert("first")))
	ballast := filepath.Join(root, "ballast")
	for round := range 3 {
		fill(t, ballast)
		before := count(t, d)
		big := string(make([]byte, 600<<10))
		for _, n := range []int{1, 3} { // alone and in company
			release := hold(t, d)
			wait := queued(t, d, true, slicesRepeat(insert(big), n)...)
			release()
			for _, err := range wait() {
				if !errors.Is(err, store.ErrDiskFull) {
					t.Fatalf("round %d: %v", round, err)
				}
			}
		}
		if n := count(t, d); n != before || d.Broken() != nil {
			t.Fatalf("round %d: %d events, want %d; broken: %v", round, n, before, d.Broken())
		}
		must(t, os.Remove(ballast))
		must(t, d.Do(t.Context(), true, insert("again")))
		if n, err := verify(d); n != before+1 || err != nil {
			t.Fatalf("round %d: chain of %d: %v", round, n, err)
		}
	}
	fill(t, ballast)
	if _, err := Create(filepath.Join(root, "other")); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("create: %v", err)
	}
	must(t, d.Close())
	if again, err := Open(t.Context(), dir, Options{}); err == nil {
		must(t, again.Close())
	} else if !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("open on a full disk: %v", err)
	}
	must(t, os.Remove(ballast))
	again := open(t, dir, Options{})
	if n, err := verify(again); n != 4 || err != nil {
		t.Errorf("chain of %d: %v", n, err)
	}
	must(t, again.Close())
}

// fill writes a file until the disk has no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	root := need.Disk(t, "size=4m")
	dir := filepath.Join(root, "thread")
	_, err := Create(dir)
	must(t, err)
	d, err := Open(t.Context(), dir, Options{})
	must(t, err)
	must(t, d.Do(t.Context(), true, insert("1")))
	must(t, d.Close())
	remount := func(flags uintptr) { must(t, unix.Mount("", root, "", unix.MS_REMOUNT|flags, "")) }
	remount(unix.MS_RDONLY)
	if _, err := Open(t.Context(), dir, Options{}); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("open: %v", err)
	}
	if _, err := Create(filepath.Join(root, "other")); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("create: %v", err)
	}
	remount(0)
	d = open(t, dir, Options{})
	must(t, d.Do(t.Context(), true, insert("2")))
	if n := count(t, d); n != 2 {
		t.Errorf("%d events", n)
	}
	must(t, d.Close())
}

// A database that an older build of this format made gets the columns it lacks,
// and that build goes on writing to it.
func TestLaterColumns(t *testing.T) {
	dir := fresh(t)
	f := foreign(t, dir)
	for _, q := range []string{
		"ALTER TABLE x_step DROP COLUMN cache_write",
		"ALTER TABLE x_step DROP COLUMN asks",
		"ALTER TABLE x_step DROP COLUMN summary",
		"ALTER TABLE x_step DROP COLUMN is_error",
		"ALTER TABLE x_step DROP COLUMN external",
		"ALTER TABLE x_delivery DROP COLUMN parts",
		"ALTER TABLE x_delivery DROP COLUMN reach",
		"ALTER TABLE x_turn DROP COLUMN attempts",
		"INSERT INTO x_turn(key, inbox_id, state) VALUES('t', 1, 'claimed')",
		"INSERT INTO x_delivery(event_id, key, state, created_at, updated_at) VALUES(1, 'k', 'sent', 0, 0)",
		"INSERT INTO x_step(turn, key, seq, kind, state, recorded_at) VALUES('t', 'model:1', 1, 'model', 'done', 0)",
	} {
		_, err := f.Exec(q)
		must(t, err)
	}
	for range 2 {
		must(t, openOnce(t, dir))
	}
	_, err := f.Exec("INSERT INTO x_step(turn, key, seq, kind, state, recorded_at) VALUES('t', 'model:2', 2, 'model', 'done', 0)")
	must(t, err)
	var n, written int
	must(t, f.QueryRow("SELECT COUNT(*), SUM(cache_write + asks + length(summary) + is_error + external) FROM x_step").Scan(&n, &written))
	if n != 2 || written != 0 {
		t.Errorf("%d steps, %d tokens", n, written)
	}
	must(t, f.QueryRow("SELECT COUNT(*), SUM(parts + reach) FROM x_delivery").Scan(&n, &written))
	if n != 1 || written != 0 {
		t.Errorf("%d deliveries, %d parts", n, written)
	}
	must(t, f.QueryRow("SELECT COUNT(*), SUM(length(attempts)) FROM x_turn").Scan(&n, &written))
	if n != 1 || written != 0 {
		t.Errorf("%d turns, %d bytes of attempts", n, written)
	}
}

func openOnce(t *testing.T, dir string) error {
	d, err := Open(t.Context(), dir, Options{})
	if err != nil {
		return err
	}
	return d.Close()
}
