package agentlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait bounds the wait for another process's lock. A writer stopped in the
// middle (SIGSTOP) must not stop every other one: after it, the line is appended
// without the lock. O_APPEND keeps it intact, only a rotation may come late.
const lockWait = 2 * time.Second

// logFile is one open agent.log.
type logFile struct {
	dir      string
	lockWait time.Duration

	mu      sync.Mutex
	evicted bool
	f       *os.File // nil: not open
	size    int64    // bytes counted in lines
	lines   int
	partial bool // the last byte counted is not a newline (a writer died in the middle)
}

// append writes the lines under the file's lock, rotating where the limit falls.
func (f *logFile) append(lines [][]byte) error {
	for len(lines) > 0 {
		locked, err := f.lock()
		if err != nil {
			return err
		}
		n := len(lines)
		if locked {
			room := maxLines - f.lines
			if f.partial { // the torn line gets its end and counts
				room--
			}
			if room <= 0 {
				if err := f.rotate(); err != nil {
					return err
				}
				continue // the new file is not locked yet
			}
			n = min(n, room)
		}
		err = f.write(lines[:n], locked)
		f.unlock(locked)
		if err != nil {
			return err
		}
		lines = lines[n:]
	}
	return nil
}

// write adds complete lines or nothing.
func (f *logFile) write(lines [][]byte, locked bool) error {
	block := bytes.Join(lines, nil)
	if f.partial {
		block = append([]byte{'\n'}, block...)
	}
	n, err := f.f.Write(block)
	if err != nil {
		if n > 0 && locked { // disk full in the middle: take the torn part back
			err = errors.Join(err, f.f.Truncate(f.size))
		}
		return err
	}
	if !locked { // others may have written between: count again next time
		f.size, f.lines, f.partial = 0, 0, false
		return nil
	}
	f.size += int64(len(block))
	f.lines += len(lines)
	if f.partial {
		f.lines, f.partial = f.lines+1, false
	}
	return nil
}

// lock opens the file if needed, takes its lock and counts what others appended
// since. A file that another process rotated away is left for the new one.
func (f *logFile) lock() (locked bool, err error) {
	for {
		if f.f == nil {
			if err := f.open(); err != nil {
				return false, err
			}
		}
		if locked, err = flockFor(f.f, f.lockWait); err != nil {
			return false, errors.Join(err, f.close())
		}
		if f.current() {
			if err := f.count(); err != nil {
				return false, errors.Join(err, f.close()) // closing drops the lock
			}
			return locked, nil
		}
		if err := f.close(); err != nil {
			return false, err
		}
	}
}

func (f *logFile) unlock(locked bool) {
	if locked {
		_ = unix.Flock(int(f.f.Fd()), unix.LOCK_UN) // fails only on a bad descriptor
	}
}

func (f *logFile) path() string { return filepath.Join(f.dir, "agent.log") }

func (f *logFile) open() error {
	const flags = os.O_RDWR | os.O_APPEND | os.O_CREATE | unix.O_NOFOLLOW | unix.O_CLOEXEC
	file, err := os.OpenFile(f.path(), flags, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		// Only the last element: a removed agent directory is not brought back.
		if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		file, err = os.OpenFile(f.path(), flags, 0o600)
	}
	if err != nil {
		return err
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.path())
	}
	if err == nil && fi.Mode().Perm() != 0o600 {
		err = file.Chmod(0o600)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.f, f.size, f.lines, f.partial = file, 0, 0, false
	return nil
}

func (f *logFile) close() error {
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	f.f = nil
	return err
}

// evict closes the file permanently; a writer that still holds the entry looks it
// up again.
func (f *logFile) evict() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.evicted = true
	return f.close()
}

// current reports whether the open file is still the one named agent.log.
func (f *logFile) current() bool {
	named, err := os.Lstat(f.path())
	if err != nil {
		return false
	}
	open, err := f.f.Stat()
	return err == nil && os.SameFile(named, open)
}

// count reads only the bytes not counted yet: all of them once after opening,
// then what other processes appended.
func (f *logFile) count() error {
	fi, err := f.f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() < f.size { // somebody truncated it: start over
		f.size, f.lines, f.partial = 0, 0, false
	}
	if fi.Size() == f.size {
		return nil
	}
	buf := make([]byte, min(fi.Size()-f.size, 64<<10))
	for f.size < fi.Size() {
		n, err := f.f.ReadAt(buf[:min(int64(len(buf)), fi.Size()-f.size)], f.size)
		if n > 0 {
			f.lines += bytes.Count(buf[:n], []byte{'\n'})
			f.partial = buf[n-1] != '\n'
			f.size += int64(n)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			break
		}
	}
	return nil
}

// rotate renames the locked file to agent-<time>.log, or -2, -3 ... when that
// name is taken, and closes it; closing drops the lock, and every writer that
// waits for it finds the name gone.
func (f *logFile) rotate() error {
	base := "agent-" + time.Now().UTC().Format("20060102-150405")
	for i := 1; ; i++ {
		name := base + ".log"
		if i > 1 {
			name = fmt.Sprintf("%s-%d.log", base, i)
		}
		err := renameNew(f.path(), filepath.Join(f.dir, name))
		if errors.Is(err, os.ErrExist) {
			continue
		}
		return errors.Join(err, f.close())
	}
}

// flockFor takes the exclusive lock, or reports false after wait. It polls
// because a blocking flock cannot be given up.
func flockFor(f *os.File, wait time.Duration) (bool, error) {
	pause, until := 20*time.Microsecond, time.Time{}
	for try := 0; ; try++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		now := time.Now()
		if until.IsZero() {
			until = now.Add(wait)
		}
		if now.After(until) {
			return false, nil
		}
		if try < 8 {
			runtime.Gosched()
			continue
		}
		time.Sleep(pause)
		pause = min(2*pause, 2*time.Millisecond)
	}
}
