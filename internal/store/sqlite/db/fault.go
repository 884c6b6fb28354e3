package db

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/store"
)

// note classifies err and remembers one that ends the database's use.
func (d *DB) note(err error) error {
	if err == nil {
		return nil
	}
	err = mapError(err)
	if errors.Is(err, store.ErrIO) || errors.Is(err, store.ErrCorrupt) {
		d.breakWith(err)
	}
	return err
}

func (d *DB) breakWith(err error) { d.broken.CompareAndSwap(nil, &err) }

// stillThere reports whether the name still means our file. A database whose
// directory was removed or moved away takes writes without an error, and nobody
// would ever see them.
func (d *DB) stillThere() error {
	var now unix.Stat_t
	if err := unix.Stat(d.name, &now); err == nil && now.Dev == d.file.Dev && now.Ino == d.file.Ino {
		return nil
	}
	return goneError(d.dir)
}
