// Package room owns the directory in which a sandbox keeps what is temporary: the
// workdir of a probe, and /tmp of a program that has none of its own.
//
// It promises that what a killed process left there is gone after the next start
// over the same place: a room is locked for as long as its process lives, the
// kernel opens the lock at its death, and who makes a room first removes those
// that nobody holds. A room in use, of this process or another, is never touched.
//
// It does not look at names that are not its own, and does not wait for anybody.
package room

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Prefix is how the names of rooms begin.
const Prefix = "theclaw-sandbox-"

// tries bounds how often a new room is lost to somebody who sweeps at that instant.
const tries = 10

// Room is one directory, held until Close. One that could not be made says why when
// it is used.
type Room struct {
	Path string
	lock *os.File
	err  error
}

// Make is New, with the error kept for later.
func Make(dir string, enter bool) *Room {
	r, err := New(dir, enter)
	if err != nil {
		return &Room{err: err}
	}
	return r
}

// Temp makes a directory in the room.
func (r *Room) Temp(pattern string) (string, error) {
	if r.err != nil {
		return "", r.err
	}
	return os.MkdirTemp(r.Path, pattern)
}

// New sweeps dir and makes a room in it. enter lets other users pass through it,
// which programs that run as another user need; they cannot list it.
func New(dir string, enter bool) (*Room, error) {
	Sweep(dir)
	for range tries {
		path, err := os.MkdirTemp(dir, Prefix)
		if err != nil {
			return nil, fmt.Errorf("make temporary directory: %w", err)
		}
		f, err := hold(path)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue // somebody who sweeps was faster
		}
		if err == nil && enter {
			err = os.Chmod(path, 0o711)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("hold temporary directory: %w", err), os.Remove(path))
		}
		return &Room{Path: path, lock: f}, nil
	}
	return nil, fmt.Errorf("make temporary directory in %s: it is swept by others all the time", dir)
}

// hold locks the directory at path, if it is still the one with that name.
func hold(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		var ours, named os.FileInfo
		if ours, err = f.Stat(); err == nil {
			if named, err = os.Lstat(path); err == nil && !os.SameFile(ours, named) {
				err = os.ErrNotExist
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close removes the room with all that is in it.
func (r *Room) Close() error {
	if r.err != nil {
		return nil
	}
	return errors.Join(os.RemoveAll(r.Path), r.lock.Close())
}

// Sweep removes the rooms in dir that nobody holds. One that cannot be removed,
// such as another user's, stays.
func Sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the error is told by who makes something there
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), Prefix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		f, err := hold(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		_ = f.Close()
	}
}
