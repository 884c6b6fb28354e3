package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gofrs/flock"
	"github.com/oklog/ulid/v2"
)

// Holder is the identity of one process that takes leases, and its sign of
// life: an exclusive flock on <dir>/<id>.lock, which the kernel gives up when
// the process ends in any way.
type Holder struct {
	id   string
	lock *flock.Flock // nil for a remote holder
}

const lockSuffix = ".lock"

// NewHolder makes an identity that was never used before and, if dir is not
// empty, takes its lock there. dir is run/holders of the registry's home and
// must be on a local file system; it is made if missing. A process that does
// not share that directory with the registry passes "", and its leases end by
// Release and by expiry only.
//
// The id is <name>@<mark>-<ulid>, where mark identifies this directory on this
// boot of this machine, or <name>-<ulid> for a remote holder.
func NewHolder(dir, name string) (*Holder, error) {
	if name == "" || strings.ContainsAny(name, "/@\x00") || name[0] == '.' || len(name) > 100 {
		return nil, fmt.Errorf("name holder: %q is not a plain name of 1 to 100 bytes", name)
	}
	if dir == "" {
		return &Holder{id: name + "-" + ulid.Make().String()}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make holder directory: %w", err)
	}
	if m := mark(dir); m != "" {
		name += "@" + m
	}
	for range 100 {
		h := &Holder{id: name + "-" + ulid.Make().String()}
		ok, err := h.take(holderPath(dir, h.id))
		if err != nil {
			return nil, fmt.Errorf("lock holder %s: %w", h.id, err)
		}
		if ok {
			return h, nil
		}
		// SweepHolders took the file between its making and its lock.
	}
	return nil, fmt.Errorf("lock holder %s: the file is taken away each time", name)
}

// take locks the file and makes sure that it is still the one in the directory.
func (h *Holder) take(path string) (bool, error) {
	h.lock = flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	// It waits for nobody but a sweep that has just found the new file unlocked.
	if err := h.lock.Lock(); err != nil {
		return false, err
	}
	mine, err := h.lock.Stat()
	if err != nil {
		return false, errors.Join(err, h.lock.Unlock())
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(mine, there) {
		return false, h.lock.Unlock()
	}
	// For people; no decision depends on it.
	if err := os.WriteFile(path, strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o600); err != nil {
		return false, errors.Join(err, h.lock.Unlock())
	}
	return true, nil
}

// ServiceOf is the name of the service in the id of a holder, as it was given to NewHolder:
// runner-2 of runner-2@1f0c...-01J.... An id of another shape is returned as it is.
func ServiceOf(holder string) string {
	name, _, marked := strings.Cut(holder, "@")
	if i := len(name) - ulid.EncodedSize - 1; !marked && i > 0 && name[i] == '-' {
		if _, err := ulid.ParseStrict(name[i+1:]); err == nil {
			return name[:i]
		}
	}
	return name
}

// ID is the holder's name in leases.
func (h *Holder) ID() string { return h.id }

// Local reports whether the holder keeps a lock that a registry can test.
func (h *Holder) Local() bool { return h.lock != nil }

// Close removes the lock file and gives up the lock. Release the leases first:
// from here on they count as a dead holder's.
func (h *Holder) Close() error {
	if h.lock == nil || !h.lock.Locked() {
		return nil
	}
	err := os.Remove(h.lock.Path())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err := errors.Join(err, h.lock.Unlock()); err != nil {
		return fmt.Errorf("close holder %s: %w", h.id, err)
	}
	return nil
}

// HolderDead reports whether the holder certainly runs no more:
//
//   - its file is there and its lock can be taken: dead, however it died;
//   - its file is gone and its id carries this directory's mark: dead, it went
//     in good order (or was swept after its death);
//   - anything else, such as a remote or foreign id, one of an earlier boot
//     without a file, an unreadable file: unknown, hence false, and its leases
//     run out by their ttl.
//
// A stopped process keeps its lock and is not dead.
func HolderDead(dir, holder string) bool {
	if !plainID(holder) {
		return false
	}
	lock, err := probe(holderPath(dir, holder))
	if errors.Is(err, fs.ErrNotExist) {
		m := mark(dir)
		return m != "" && strings.Contains(holder, "@"+m+"-")
	}
	if err != nil || lock == nil {
		return false
	}
	_ = lock.Unlock() // it closes the file; the answer stands
	return true
}

// probe takes the lock of a dead holder's file, or returns nil for a living
// one. The lock is shared, so that two who ask at once do not take each other
// for the holder, and opens without O_CREATE: asking leaves no trace.
func probe(path string) (*flock.Flock, error) {
	lock := flock.New(path, flock.SetFlag(os.O_RDONLY|syscall.O_NOFOLLOW))
	ok, err := lock.TryRLock()
	if err != nil || !ok {
		return nil, err
	}
	return lock, nil
}

// SweepHolders removes the lock files of dead holders and returns their ids. A registry
// calls it now and then, and not before the leases of dead holders have ended: of a holder
// of an earlier boot nothing but its file proves the death.
func SweepHolders(dir string) ([]string, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read holders: %w", err)
	}
	var swept []string
	for _, f := range files {
		holder, ok := strings.CutSuffix(f.Name(), lockSuffix)
		if !ok {
			continue
		}
		lock, err := probe(holderPath(dir, holder))
		if err != nil || lock == nil {
			continue
		}
		// Removed under the lock: a holder that is just starting then finds its
		// file gone and takes another, instead of living on without one.
		err = os.Remove(lock.Path())
		_ = lock.Unlock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return swept, fmt.Errorf("sweep holder %s: %w", holder, err)
		}
		swept = append(swept, holder)
	}
	return swept, nil
}

// plainID keeps an id that came over the wire inside the directory.
func plainID(holder string) bool {
	return holder != "" && len(holder) <= 200 && holder[0] != '.' && !strings.ContainsAny(holder, "/\x00")
}

func holderPath(dir, holder string) string { return filepath.Join(dir, holder+lockSuffix) }

// mark names a directory on this boot of this machine, or is empty where the
// system does not report it. A missing file proves something only about the one
// directory it was made in: the same path on another machine is another one.
func mark(dir string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(boot, "\x00%d\x00%d", st.Dev, st.Ino))
	return hex.EncodeToString(sum[:4])
}
