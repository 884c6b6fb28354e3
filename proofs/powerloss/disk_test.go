//go:build proof

package powerloss_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/ncruces/go-sqlite3/vfs"
)

// name of the file system.
const name = "powerloss"

func init() { vfs.Register(name, system{}) }

// write is one that no fsync has followed yet.
type write struct {
	off  int64
	data []byte
	cut  bool // a truncation to off
}

// image is one file: what is on the medium, and what the cache holds above it.
type image struct {
	medium  []byte
	cache   []byte
	pending []write
}

func (i *image) do(w write) {
	i.cache = apply(i.cache, w)
	i.pending = append(i.pending, w)
}

func apply(b []byte, w write) []byte {
	if w.cut {
		return b[:min(int64(len(b)), w.off)]
	}
	if n := int(w.off) + len(w.data) - len(b); n > 0 {
		b = append(b, make([]byte, n)...)
	}
	copy(b[w.off:], w.data)
	return b
}

// disk is the medium of all files. Its power goes at an operation that changes it.
type disk struct {
	mu     sync.Mutex
	files  map[string]*image
	ops    int
	cutAt  int // 0: never
	off    bool
	writes int // unsynced ones at the cut
}

var errPower = errors.New("the power is off")

// current is the disk in use; runs come one after the other.
var current *disk

// tick counts a change, or refuses it because the power is gone.
func (d *disk) tick() error {
	d.ops++
	if d.off || d.cutAt > 0 && d.ops >= d.cutAt {
		d.off = true
		return errPower
	}
	return nil
}

// cut ends the power now.
func (d *disk) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
}

// restart answers the disk after the power came back: each write without an
// fsync has survived, is gone, or is there in part, independent of the others.
func (d *disk) restart(chance *rand.Rand, names []string) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := &disk{files: map[string]*image{}}
	for _, n := range names {
		old, ok := d.files[n]
		if !ok {
			continue
		}
		b := append([]byte(nil), old.medium...)
		for _, w := range old.pending {
			d.writes++
			switch chance.IntN(3) {
			case 0:
				b = apply(b, w)
			case 1:
				if len(w.data) > 1 {
					b = apply(b, write{off: w.off, data: w.data[:1+chance.IntN(len(w.data)-1)]})
				}
			}
		}
		next.files[n] = &image{medium: b, cache: append([]byte(nil), b...)}
	}
	return next
}

// file finds an image. A database that the store has made as a real file, whole
// and synced before it had its name, is on the medium from the start.
func (d *disk) file(path string, create bool) *image {
	i, ok := d.files[path]
	if ok {
		return i
	}
	if b, err := os.ReadFile(path); err == nil {
		i = &image{medium: b, cache: append([]byte(nil), b...)}
	} else if create {
		i = &image{}
	} else {
		return nil
	}
	d.files[path] = i
	return i
}

type system struct{}

func (system) Open(path string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	d := current
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file(path, flags&vfs.OPEN_CREATE != 0) == nil {
		return nil, flags, sqlite3.CANTOPEN
	}
	return &open{d, path}, flags, nil
}

func (system) Delete(path string, _ bool) error {
	d := current
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.tick(); err != nil {
		return err
	}
	delete(d.files, path)
	return nil
}

func (system) Access(path string, _ vfs.AccessFlag) (bool, error) {
	d := current
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.file(path, false)
	return i != nil && len(i.cache) > 0, nil
}

func (system) FullPathname(path string) (string, error) { return path, nil }

// open is an open file.
type open struct {
	d    *disk
	path string
}

func (f *open) change(do func(*image)) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.tick(); err != nil {
		return err
	}
	do(f.d.file(f.path, true))
	return nil
}

func (f *open) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	b := f.d.file(f.path, true).cache
	if off >= int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *open) WriteAt(p []byte, off int64) (int, error) {
	return len(p), f.change(func(i *image) { i.do(write{off: off, data: append([]byte(nil), p...)}) })
}

func (f *open) Truncate(size int64) error {
	return f.change(func(i *image) { i.do(write{off: size, cut: true}) })
}

func (f *open) Sync(vfs.SyncFlag) error {
	return f.change(func(i *image) { i.medium, i.pending = append(i.medium[:0:0], i.cache...), nil })
}

func (f *open) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.d.file(f.path, true).cache)), nil
}

func (f *open) Close() error                     { return nil }
func (f *open) Lock(vfs.LockLevel) error         { return nil }
func (f *open) Unlock(vfs.LockLevel) error       { return nil }
func (f *open) CheckReservedLock() (bool, error) { return false, nil }
func (f *open) SectorSize() int                  { return 0 }
func (f *open) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return vfs.IOCAP_POWERSAFE_OVERWRITE // as our own engine has it
}
