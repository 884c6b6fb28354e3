// Package handlerlock holds and clears the lock file that an external dispatcher creates
// before it starts the handler of a consumer: <thread>/run/<consumer>.lock.
//
//	dispatcher: create (fails when there: skip) -> start handler -> forget it
//	handler:    Hold (flock, our pid) -> work -> Release (remove) -> poll once more
//	killed:     the flock goes with the process, the file stays -> Clear, by the sweep
//
// The dispatcher never removes its lock, and the pid it writes there is its own,
// dead within milliseconds. Therefore the handler takes an OS lock on the same file: as
// long as that is held a handler runs, and a file that nobody has held for longer than
// a handler needs to start is stale.
//
// It promises that a lock of a living handler is not removed by anybody else, and
// that a stale one does not block later dispatches forever. It
// guards no data: two handlers at once do no harm, since leases decide who works.
package handlerlock

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Start is how long a handler may take from the dispatcher's lock to Hold.
const Start = 5 * time.Second

// Lock is a dispatcher's lock in the hands of its handler. A nil Lock is none.
type Lock struct {
	file *os.File
	path string
}

func path(threadDir, consumer string) string {
	return filepath.Join(threadDir, "run", consumer+".lock")
}

// Hold takes the lock that a dispatcher left for a consumer, and returns nil when
// there is none or when another handler has it: then there is nothing to remove.
func Hold(threadDir, consumer string) *Lock {
	l, err := hold(path(threadDir, consumer), 0)
	if err != nil {
		return nil
	}
	// For people, who look for a living process.
	pid := strconv.Itoa(os.Getpid())
	if _, err := l.file.WriteAt([]byte(pid), 0); err == nil {
		_ = l.file.Truncate(int64(len(pid)))
	}
	return l
}

var errNotOurs = errors.New("the lock is another's")

// hold takes the OS lock on a file that is at least so old.
func hold(path string, age time.Duration) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		var held, named os.FileInfo
		held, err = f.Stat()
		if err == nil {
			named, err = os.Lstat(path)
		}
		if err == nil && (!os.SameFile(held, named) || !held.Mode().IsRegular() || time.Since(held.ModTime()) < age) {
			err = errNotOurs // removed and made again since, or a handler that is just starting
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{f, path}, nil
}

// Release removes the lock, so that the next event is dispatched again. Whoever
// releases looks for events once more: one that came before was not dispatched.
func (l *Lock) Release() {
	if l == nil {
		return
	}
	_ = os.Remove(l.path) // gone is as good
	_ = l.file.Close()
}

// Clear removes a lock whose handler is gone and reports whether there was one.
func Clear(threadDir, consumer string) bool {
	l, err := hold(path(threadDir, consumer), Start)
	if err != nil {
		return false
	}
	l.Release()
	return true
}
