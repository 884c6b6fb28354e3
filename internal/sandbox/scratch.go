package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// scratchPrefix is the prefix of the names of scratch directories.
const scratchPrefix = "theclaw-sandbox-"

// scratchTries bounds how often a new directory is lost to a concurrent sweep.
const scratchTries = 10

// scratch is the private directory of a sandbox for temporary files: the workdir of a
// probe, and /tmp of a program that has none of its own. It is locked until Close or until
// its process ends, when the kernel releases the lock. Whoever makes the next one in the
// same place first removes those that are not locked, so what a killed process left is
// gone after the next start. One in use, of this process or another, is never touched,
// and neither are other names.
//
// A scratch that could not be made returns the reason when it is used.
type scratch struct {
	Path string
	lock *os.File
	err  error
}

// makeScratch is newScratch, with the error kept for later.
func makeScratch(dir string, enter bool) *scratch {
	r, err := newScratch(dir, enter)
	if err != nil {
		return &scratch{err: err}
	}
	return r
}

// Temp makes a directory in it.
func (r *scratch) Temp(pattern string) (string, error) {
	if r.err != nil {
		return "", r.err
	}
	return os.MkdirTemp(r.Path, pattern)
}

// newScratch sweeps dir and makes a scratch directory in it. enter lets other users pass through it,
// which programs that run as another user need; they cannot list it.
func newScratch(dir string, enter bool) (*scratch, error) {
	sweepScratch(dir)
	for range scratchTries {
		path, err := os.MkdirTemp(dir, scratchPrefix)
		if err != nil {
			return nil, fmt.Errorf("make temporary directory: %w", err)
		}
		f, err := lockDir(path)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue // a concurrent sweep was faster
		}
		if err == nil && enter {
			err = os.Chmod(path, 0o711)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("hold temporary directory: %w", err), os.Remove(path))
		}
		return &scratch{Path: path, lock: f}, nil
	}
	return nil, fmt.Errorf("make temporary directory in %s: it is swept by others all the time", dir)
}

// lockDir locks the directory at path, if it is still the one with that name.
func lockDir(path string) (*os.File, error) {
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

// Close removes the directory with its contents.
func (r *scratch) Close() error {
	if r.err != nil {
		return nil
	}
	return errors.Join(os.RemoveAll(r.Path), r.lock.Close())
}

// sweepScratch removes the scratch directories in dir that are not locked. One that cannot
// be removed, such as another user's, stays.
func sweepScratch(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // reported when something is made there
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		f, err := lockDir(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		_ = f.Close()
	}
}
