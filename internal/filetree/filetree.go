// Package filetree walks a directory tree that other programs fill and change while it is
// walked: with names that are no text, directories thousands of levels deep, and files that
// disappear.
//
// It goes from directory to directory by descriptors ([os.Root]), so that no path is too
// long for the system, no symbolic link is followed out of the tree, and the time is in
// proportion to the number of entries. It holds a bounded number of descriptors open,
// however deep the tree is. What cannot be read is reported with its path, and the walk
// continues with the rest.
//
// It changes nothing and reads no file.
package filetree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

const (
	// MaxPath is the longest path, in bytes, of a directory whose content is walked.
	MaxPath = 16 << 10
	// maxOpen is the number of directories that are held open.
	maxOpen = 64
)

// ErrTooDeep is reported for a directory whose path is longer than [MaxPath].
var ErrTooDeep = errors.New("the directory is nested too deeply")

// Entry is one entry of a directory.
type Entry struct {
	Path string      // below the root, with slashes
	Info fs.FileInfo // of the entry; a symbolic link is not followed
	// Dir is the directory that holds the entry. It is valid during the call only.
	Dir *os.Root
}

// Name is the last element of the path.
func (e Entry) Name() string { return path.Base(e.Path) }

// Open opens a regular file for reading. It follows no link and does not wait for the
// other end of a pipe that has taken the place of the file; what is no regular file any
// more is an error that wraps [fs.ErrNotExist].
func (e Entry) Open() (*os.File, error) { return Open(e.Dir, e.Name()) }

// Visit is called with each entry; a directory comes before its content. Its error ends
// the walk, but for [fs.SkipDir], which leaves out the content of a directory.
type Visit func(Entry) error

// Failed is called with the path of what cannot be read.
type Failed func(path string, err error)

// level is a directory on the path from the top to where the walk is.
type level struct {
	path string
	root *os.Root // nil: closed meanwhile
	dirs []string // not visited yet
}

type walk struct {
	ctx    context.Context
	visit  Visit
	failed Failed
	stack  []level
}

// Walk visits what is below top, a path below root, and top itself unless it is ".". The
// entries of a directory come in the order of their names, directories after all others.
// What disappears during the walk is left out, and so is a top that does not exist.
func Walk(ctx context.Context, root *os.Root, top string, visit Visit, failed Failed) error {
	w := &walk{ctx: ctx, visit: visit, failed: failed}
	defer w.close(0)
	dir, err := root.OpenRoot(path.Dir(top))
	if err != nil {
		w.fail(top, err)
		return nil
	}
	first := level{path: path.Dir(top), root: dir}
	if top == "." {
		err = w.enter(first)
	} else {
		w.stack = append(w.stack, first)
		err = w.entry(dir, top, func() { w.stack[0].dirs = []string{path.Base(top)} })
	}
	if err != nil {
		return err
	}
	for len(w.stack) > 0 {
		last := len(w.stack) - 1
		l := &w.stack[last]
		if len(l.dirs) == 0 {
			w.close(last)
			continue
		}
		if l.root == nil && !w.reopen() {
			continue
		}
		name := l.dirs[0]
		l.dirs = l.dirs[1:]
		p := path.Join(l.path, name)
		sub, err := openDir(l.root, name)
		if err != nil {
			w.fail(p, err)
			continue
		}
		if err := w.enter(level{path: p, root: sub}); err != nil {
			return err
		}
	}
	return nil
}

// enter reads a directory, visits its entries and puts it on the stack.
func (w *walk) enter(l level) error {
	w.stack = append(w.stack, l)
	if n := len(w.stack); n > maxOpen { // the first one stays open, to come back from
		if old := &w.stack[n-maxOpen]; old.root != nil && n-maxOpen > 0 {
			_ = old.root.Close() // it was only read
			old.root = nil
		}
	}
	if len(l.path) > MaxPath {
		w.fail(l.path, ErrTooDeep)
		return nil
	}
	f, err := l.root.Open(".")
	if err != nil {
		w.fail(l.path, err)
		return nil
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		w.fail(l.path, err) // and visit what could be read
	}
	slices.Sort(names)
	var dirs []string
	for _, name := range names {
		if err := w.entry(l.root, path.Join(l.path, name), func() { dirs = append(dirs, name) }); err != nil {
			return err
		}
	}
	w.stack[len(w.stack)-1].dirs = dirs
	return nil
}

// entry visits one entry; below is called with a directory whose content is to be visited.
// Directories are visited when they are listed, and entered after all other entries.
func (w *walk) entry(dir *os.Root, p string, below func()) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	info, err := dir.Lstat(path.Base(p))
	if err != nil {
		w.fail(p, err)
		return nil
	}
	err = w.visit(Entry{Path: p, Info: info, Dir: dir})
	if info.IsDir() {
		if errors.Is(err, fs.SkipDir) {
			return nil
		}
		if err == nil {
			below()
		}
	}
	return err
}

// reopen opens the last directory again, and those above it that are held open. Where one
// is gone, because it was moved, it is taken off the stack with all below it.
func (w *walk) reopen() bool {
	last := len(w.stack) - 1
	dir := w.stack[0].root
	for i := 1; i <= last; i++ {
		sub, err := openDir(dir, path.Base(w.stack[i].path))
		if prev := &w.stack[i-1]; i > 1 && i-1 <= last-maxOpen/2 {
			_ = prev.root.Close() // it was only read
			prev.root = nil
		}
		if err != nil {
			w.fail(w.stack[i].path, err)
			w.close(i)
			return false
		}
		if old := w.stack[i].root; old != nil {
			_ = old.Close()
		}
		w.stack[i].root, dir = sub, sub
	}
	return true
}

// close closes the directories from the i-th on and takes them off the stack.
func (w *walk) close(i int) {
	for _, l := range w.stack[i:] {
		if l.root != nil {
			_ = l.root.Close() // it was only read
		}
	}
	w.stack = w.stack[:i]
}

func (w *walk) fail(p string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		w.failed(p, Cause(err))
	}
}

// Cause is an error without the path that the system names, which is reported with it.
func Cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// openDir opens a directory below dir. One that became a symbolic link is an error.
func openDir(dir *os.Root, name string) (*os.Root, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fs.ErrNotExist
	}
	sub, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := sub.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}

// Kind describes what an entry is that is neither a regular file nor a directory.
func Kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return fmt.Sprintf("of type %s", strings.ToLower(mode.Type().String()))
}
