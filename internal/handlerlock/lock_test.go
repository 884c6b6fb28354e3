package handlerlock

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// dispatched makes the lock as a dispatcher of that long ago would have left it.
func dispatched(t *testing.T, ago time.Duration) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "run", "inbox.lock")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("1234567"), 0o644); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-ago)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

func there(file string) bool { _, err := os.Lstat(file); return err == nil }

// CONTRACTS 1.5: the handler removes the lock, and nobody else while it lives.
func TestHandler(t *testing.T) {
	dir, file := dispatched(t, time.Hour)
	l := Hold(dir, "inbox")
	if l == nil {
		t.Fatal("the lock is not taken")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != strconv.Itoa(os.Getpid()) {
		t.Errorf("%s, %v", b, err)
	}
	if Hold(dir, "inbox") != nil || Clear(dir, "inbox") || !there(file) {
		t.Error("a living handler's lock was taken or cleared")
	}
	l.Release()
	if there(file) {
		t.Error("the lock is still there")
	}
	if Hold(dir, "inbox") != nil {
		t.Error("there is none, and it was taken")
	}
	(*Lock)(nil).Release()
}

// A lock that was removed and made again by the next dispatch is not taken for
// the old one.
func TestMadeAgain(t *testing.T) {
	dir, file := dispatched(t, 0)
	old, err := hold(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l := Hold(dir, "inbox"); l == nil {
		t.Error("the new lock is held by nobody and was not taken")
	} else {
		_ = l.file.Close()
	}
	_ = old.file.Close()
}

func TestClear(t *testing.T) {
	if dir, file := dispatched(t, time.Second); Clear(dir, "inbox") || !there(file) {
		t.Error("a lock whose handler may be starting was cleared")
	}
	dir, file := dispatched(t, time.Minute)
	if l := Hold(dir, "inbox"); l == nil {
		t.Fatal("not taken")
	} else if err := l.file.Close(); err != nil { // as a kill does
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	if Clear(dir, "outbound") || !Clear(dir, "inbox") || there(file) || Clear(dir, "inbox") {
		t.Error("the lock of a dead handler was not cleared once")
	}
}

// Only a file of its own is a lock: nothing behind a link is removed.
func TestLinks(t *testing.T) {
	dir, file := dispatched(t, time.Minute)
	if err := os.Rename(file, filepath.Join(dir, "precious")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "precious"), file); err != nil {
		t.Fatal(err)
	}
	if Hold(dir, "inbox") != nil || Clear(dir, "inbox") {
		t.Error("a link was taken for a lock")
	}
}
