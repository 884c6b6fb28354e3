package socket_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/rpc/socket"
)

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := socket.Listen("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dialable(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// I16, S9, SECURITY "Unix sockets 0600 in a 0700 directory".
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home", "run")
	path := filepath.Join(dir, "registry.sock")
	l := listen(t, path)
	for name, want := range map[string]os.FileMode{
		dir: os.ModeDir | 0o700, filepath.Dir(dir): os.ModeDir | 0o700,
		path: os.ModeSocket | 0o600, path + ".lock": 0o600,
	} {
		if fi, err := os.Lstat(name); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v %v, want %v", filepath.Base(name), fi.Mode(), err, want)
		}
	}
	if !dialable(path) || l.Addr().String() != path {
		t.Errorf("not reachable at %s", l.Addr())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("leftovers: %v %v", entries, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket stays after Close: %v", err)
	}
}

func TestAWideDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Listen("unix://" + filepath.Join(dir, "s")); err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("err = %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left %v behind", entries)
	}
}

func TestALiveSocketIsNeverTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "s.sock")
	first := listen(t, path)
	if _, err := socket.Listen("unix://" + path); !errors.Is(err, socket.ErrInUse) {
		t.Errorf("second: %v", err)
	}
	if !dialable(path) {
		t.Error("the refused start took the socket away")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// A stranger that knows nothing of the lock.
	stranger, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := socket.Listen("unix://" + path); !errors.Is(err, socket.ErrInUse) {
		t.Errorf("stranger: %v", err)
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "s.sock")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // what kill -9 leaves
	dead.Close()
	l := listen(t, path)
	if !dialable(path) {
		t.Error("not reachable")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	listen(t, path) // and again after a clean end
}

// P1: a child that a killed process was just starting has its socket and its lock
// for a moment more, and the next start waits for that.
func TestAChildThatLetsGoIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "runner.sock")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	lock, err := os.Create(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() {
		defer close(gone)
		_ = lock.Close()
		_ = left.Close()
	})
	l := listen(t, path)
	select {
	case <-gone:
	default:
		t.Error("the socket was taken from its child")
	}
	if !dialable(path) {
		t.Errorf("not reachable at %s", l.Addr())
	}
}

func TestCloseLeavesASuccessorAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "s.sock")
	l := listen(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("removed what was not ours: %v", err)
	}
	if _, err := socket.Listen("unix://" + path); err == nil {
		t.Error("replaced a regular file")
	}
}

func TestBadAddresses(t *testing.T) {
	for _, addr := range []string{"", "unix:relative", "unix://relative", "127.0.0.1:0", "dns:///h:1", "unix://" + filepath.Join(t.TempDir(), strings.Repeat("x", 120))} {
		if l, err := socket.Listen(addr); err == nil {
			l.Close()
			t.Errorf("%q accepted", addr)
		}
	}
}
