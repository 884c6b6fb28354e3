// Package safefile reads and replaces one small file below an [os.Root].
//
// It promises that a reader sees the old bytes or the new ones, that new bytes are on
// disk when [Replace] returns, that a file that is too large or not a regular one is
// refused (a pipe would block forever), and that a failure leaves nothing behind. A process
// killed in [Replace] leaves `.<name><digits>` next to the file.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// MaxSize is the largest file in bytes.
const MaxSize = 1 << 20

// Read returns the bytes of a file.
func Read(root *os.Root, name string) (data []byte, err error) {
	// O_NONBLOCK: somebody may have put a pipe there, and we must not wait for it.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(codes.FailedPrecondition, fault.InvalidArgument, info.Name()+" is not a regular file", "remove it")
	}
	data = make([]byte, min(info.Size(), MaxSize)+1) // one more, to see its end in one read
	n, err := io.ReadFull(f, data)
	data = data[:n]
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
	case err != nil:
		return nil, err
	case len(data) <= MaxSize: // it has grown since
		more, err := io.ReadAll(io.LimitReader(f, MaxSize+1-int64(n)))
		if err != nil {
			return nil, err
		}
		data = append(data, more...)
	}
	if len(data) > MaxSize {
		return nil, fault.New(codes.FailedPrecondition, fault.InvalidArgument,
			fmt.Sprintf("%s is larger than %d bytes", info.Name(), MaxSize), "shorten the file")
	}
	return data, nil
}

// Replace writes a temporary file and renames it: a reader sees the old or the new bytes.
// The directory is opened first, so that the temporary file lies in the same one.
func Replace(root *os.Root, name string, data []byte) (err error) {
	dir, err := root.OpenRoot(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	f, err := renameio.NewPendingFile(path.Base(name), renameio.WithRoot(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	fault.Point("safefile:before-rename")
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return SyncDir(dir, ".")
}

// leftover is the name of the temporary file of a text file.
var leftover = regexp.MustCompile(`^\..+\.(md|yaml)[0-9]+$`)

// Clean removes what a killed [Replace] left in a directory, if it is older than age; a
// younger one may still be in use.
func Clean(root *os.Root, dir string, age time.Duration) error {
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !leftover.MatchString(e.Name()) || time.Since(info.ModTime()) < age {
			continue
		}
		if err := root.Remove(path.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SyncDir makes the entries of a directory, or the bytes of a file, survive a power loss.
func SyncDir(root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
