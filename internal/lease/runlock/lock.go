package runlock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Lock is one run.lock file. It is not safe for concurrent use.
type Lock struct {
	path string
	file *os.File // nil while not held
}

// HeldError names the holder of the file; Pid is 0 when the file does not.
type HeldError struct {
	Path string
	Pid  int
}

// heldText begins the text of a HeldError.
const heldText = "run lock "

func (e *HeldError) Error() string {
	return fmt.Sprintf(heldText+"%s is held by pid %d", e.Path, e.Pid)
}

// Blocks reports whether the holder of an agent, as a registry names it, is a run lock of a
// program outside and not a runner.
func Blocks(holder string) bool { return strings.HasPrefix(holder, heldText) }

// New names the file; it does nothing yet.
func New(path string) *Lock { return &Lock{path: path} }

// Take makes the file or takes over a stale one. It never waits. Taking a lock
// that is already held is fine.
func (l *Lock) Take() error {
	if l.file != nil {
		return nil
	}
	for range 10 {
		const flags = os.O_RDWR | syscall.O_NOFOLLOW
		if f, err := createLocked(l.path); err == nil {
			l.file = f
			return nil
		}
		f, err := os.OpenFile(l.path, flags|os.O_CREATE|os.O_EXCL, 0o600)
		made := err == nil
		if errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(l.path, flags, 0)
			if errors.Is(err, fs.ErrNotExist) {
				continue // just released
			}
		}
		if err != nil {
			return fmt.Errorf("take run lock: %w", err)
		}
		ok, err := l.takeFile(f, made)
		if err == nil && ok {
			l.file = f
			return nil
		}
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("take run lock: %w", err)
		}
	}
	return fmt.Errorf("take run lock: %s is removed and made again all the time", l.path)
}

// takeFile returns false when the opened file is no longer the one at the path.
func (l *Lock) takeFile(f *os.File, made bool) (bool, error) {
	// Who made the file may wait for its lock: others only look into an empty
	// one for a moment.
	v, err := inspect(f, made)
	if err != nil {
		return false, err
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	if there, err := os.Lstat(l.path); err != nil || !os.SameFile(mine, there) {
		return false, nil
	}
	switch {
	case !made && !v.stale:
		return false, &HeldError{Path: l.path, Pid: v.pid}
	case v.moved: // its OS lock is held, so that this file cannot become ours
		return false, os.Remove(l.path)
	}
	if err := f.Truncate(0); err != nil {
		return false, err
	}
	_, err = f.WriteString(content(l.path))
	return true, err
}

// Release removes the file and gives up the OS lock. Releasing twice is fine.
func (l *Lock) Release() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	var err error
	mine, statErr := f.Stat()
	// Somebody may have removed the file and made another; that one is theirs.
	if there, e := os.Lstat(l.path); e == nil && statErr == nil && os.SameFile(mine, there) {
		err = os.Remove(l.path)
	}
	if err := errors.Join(statErr, err, f.Close()); err != nil {
		return fmt.Errorf("release run lock: %w", err)
	}
	return nil
}

// Stale reports whether the file is there and nobody stands behind it, so that
// Take would take it over. It leaves the file as it is.
func (l *Lock) Stale() (bool, error) {
	v, there, err := l.read()
	return there && v.stale, err
}

// Holder returns what keeps Take from taking the file; nil for nothing. It leaves the
// file as it is.
func (l *Lock) Holder() (*HeldError, error) {
	v, there, err := l.read()
	if err != nil || !there || v.stale {
		return nil, err
	}
	return &HeldError{Path: l.path, Pid: v.pid}, nil
}

// read evaluates a file that this lock does not hold.
func (l *Lock) read() (v verdict, there bool, err error) {
	if l.file != nil {
		return v, false, nil
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return v, false, nil
	}
	if err != nil {
		return v, false, fmt.Errorf("judge run lock: %w", err)
	}
	defer f.Close()
	if v, err = inspect(f, false); err != nil {
		return v, false, fmt.Errorf("judge run lock: %w", err)
	}
	return v, true, nil
}

// verdict is the result of reading a lock file.
type verdict struct {
	stale bool
	moved bool // stale although its OS lock is held
	pid   int  // 0: unknown
}

// inspect takes the OS lock if that is free, which f.Close releases, and evaluates the
// content of the file.
func inspect(f *os.File, wait bool) (verdict, error) {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	err := syscall.Flock(int(f.Fd()), how)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Flock(int(f.Fd()), how)
	}
	busy := errors.Is(err, syscall.EWOULDBLOCK)
	if err != nil && !busy {
		return verdict{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return verdict{}, err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxContent))
	if err != nil {
		return verdict{}, err
	}
	first, rest, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid < 0 {
		pid = 0
	}
	ours, place, _ := strings.Cut(rest, " ")
	if busy {
		gone := ours == mark && place != "" && !named(place, info)
		return verdict{stale: gone, moved: gone, pid: pid}, nil
	}
	return verdict{stale: strings.TrimSpace(ours) == mark || pidStale(pid, info.ModTime(), time.Now()), pid: pid}, nil
}

// named reports whether a path leads to a file. Where that cannot be seen it does.
func named(path string, file fs.FileInfo) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
	}
	return os.SameFile(there, file)
}

const (
	// mark shows that a file is ours, and had an OS lock from its first byte.
	mark = "theclaw"
	// maxContent is more than a path can have.
	maxContent = 8 << 10
)

// content names the process and the place for which it took the lock.
func content(path string) string {
	text := strconv.Itoa(os.Getpid()) + " " + mark
	if full, err := filepath.Abs(path); err == nil {
		text += " " + full
	}
	return text
}
