// Package socket listens on a private Unix socket: only our own user can reach it, from
// the moment it exists, and two processes that start at once never both have it.
//
// It promises:
//   - Mode 0600 in a directory of mode 0700 that is ours; a directory with wider
//     permissions is refused. The process's umask is not changed.
//   - A stale socket file is replaced, one with a listener never. The right to the
//     name is a lock on `<path>.lock` that is released when the process ends.
//   - Closing removes the socket, if it is still the one that was bound.
//
// It does not know the protocol on the socket.
package socket

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a start waits for the name. A process that was killed
// while it forked leaves a child that has the socket and the lock until it
// executes: milliseconds, or a good part of a second on a machine at its limit.
const patience = time.Second

// maxSocketPath is what fits into a Unix socket address, in bytes.
const maxSocketPath = 107

// Listen binds addr, "unix:///absolute/path". Missing directories are made with
// mode 0700; one that others may enter is refused. Closing the listener removes
// the socket. It fails when somebody listens there already and goes on to.
func Listen(addr string) (net.Listener, error) {
	path, ok := strings.CutPrefix(addr, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return nil, fmt.Errorf("listen on %q: want unix:///absolute/path", addr)
	}
	// Nobody tells when a child that is not ours lets go, so it is looked at again.
	end := time.Now().Add(patience)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		l, err := listenUnix(filepath.Clean(path))
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, ErrInUse) || time.Now().After(end) {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
		time.Sleep(wait)
	}
}

func listenUnix(path string) (_ net.Listener, err error) {
	dir := filepath.Dir(path)
	// Bound under a short name in a directory only we can enter, then renamed: so
	// nobody can connect before the mode is set, and no umask is changed (it
	// belongs to the whole process). The name is fixed, so leftovers are found.
	private := filepath.Join(dir, fmt.Sprintf(".%08x", crc32.ChecksumIEEE([]byte(filepath.Base(path)))))
	bound := filepath.Join(private, "s")
	if n := max(len(path), len(bound)); n > maxSocketPath {
		return nil, fmt.Errorf("the path is %d bytes too long for a socket", n-maxSocketPath)
	}
	if err := privateDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	if err := replaceable(path); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(private); err != nil {
		return nil, err
	}
	if err := os.Mkdir(private, 0o700); err != nil {
		return nil, err
	}
	inner, err := net.ListenUnix("unix", &net.UnixAddr{Name: bound, Net: "unix"})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(private))
	}
	inner.SetUnlinkOnClose(false) // it would remove the name it was bound to
	l := &listener{UnixListener: inner, path: path, lock: lock}
	err = os.Chmod(bound, 0o600)
	if err == nil {
		l.id, err = os.Lstat(bound)
	}
	if err == nil {
		err = os.Rename(bound, path)
	}
	if err = errors.Join(err, os.RemoveAll(private)); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return l, nil
}

// privateDir makes dir, or checks that it is ours alone. A wider one is refused
// and not narrowed: it may be somebody's home.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("directory %s belongs to user id %d", dir, st.Uid)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("directory %s has mode %04o, want 0700", dir, fi.Mode().Perm())
	}
	return nil
}

// ErrInUse means that somebody listens on the socket already.
var ErrInUse = errors.New("another process listens on this socket")

// lockFile holds the right to the socket's name. The file stays when the socket
// goes: removing it would let two starters lock two files.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// replaceable tells whether path is free or a socket nobody listens on. The lock
// keeps our own kind apart; this keeps us from taking over a stranger's.
func replaceable(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != os.ModeSocket {
		return errors.New("there is a file of another kind")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(ErrInUse, c.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrInUse, err) // a full backlog also means somebody is there
	}
	return nil
}

// listener is a bound socket that goes by the name it was renamed to.
type listener struct {
	*net.UnixListener
	path string
	id   os.FileInfo
	lock *os.File

	once sync.Once
	err  error
}

// Addr is the path clients use.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close stops listening and removes the socket if it is still ours.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.err = l.UnixListener.Close()
		if fi, err := os.Lstat(l.path); err == nil && os.SameFile(fi, l.id) {
			l.err = errors.Join(l.err, os.Remove(l.path))
		}
		l.err = errors.Join(l.err, l.lock.Close())
	})
	return l.err
}
