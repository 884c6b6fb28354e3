package workdir

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

// half begins the name of a file that is being written.
const half = ".theclaw-half-"

// Fetch passes on pieces by their hashes, in any order.
type Fetch func(ctx context.Context, hashes []string, found func(hash string, data []byte) error) error

// together is the most bytes that are fetched at once.
const together = 32 << 20

// Lay makes a directory hold a tree and nothing else, but for what the patterns leave
// out. has is what it holds; nothing that is the same in both is written or fetched.
func Lay(ctx context.Context, dir string, has, want Tree, ignore []string, fetch Fetch) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // every file was closed separately
	old := map[string]Entry{}
	for _, e := range has.Entries {
		old[e.Path] = e
	}
	if err := clean(root, old, want); err != nil {
		return err
	}
	var files []Entry
	size := int64(0)
	for _, e := range want.Entries {
		was, there := old[e.Path]
		same := there && was.Kind == e.Kind && was.Target == e.Target && was.Size == e.Size && slices.Equal(was.Pieces, e.Pieces)
		switch {
		case same && was.Mode == e.Mode:
		case same && e.Kind != Link, e.Kind == Dir: // its mode alone; a directory may be written until the end
			if e.Kind == Dir {
				err = makeDir(root, e.Path)
			} else {
				err = root.Chmod(e.Path, fs.FileMode(e.Mode))
			}
		case e.Kind == Link:
			err = root.Symlink(e.Target, e.Path)
		default:
			if size += e.Size; size > together && len(files) > 0 {
				if err = write(ctx, root, files, fetch); err != nil {
					return err
				}
				files, size = nil, e.Size
			}
			files = append(files, e)
		}
		if err != nil {
			return fmt.Errorf("lay %s: %w", e.Path, err)
		}
	}
	if err := write(ctx, root, files, fetch); err != nil {
		return err
	}
	for _, e := range slices.Backward(want.Entries) {
		if e.Kind == Dir {
			if err := root.Chmod(e.Path, fs.FileMode(e.Mode)); err != nil {
				return fmt.Errorf("lay %s: %w", e.Path, err)
			}
		}
	}
	return nil
}

// clean removes what is not in the tree any more, or is of another kind, the deepest
// first. What is left out by the patterns keeps its directory.
func clean(root *os.Root, old map[string]Entry, want Tree) error {
	kept := map[string]Entry{}
	for _, e := range want.Entries {
		kept[e.Path] = e
	}
	names := make([]string, 0, len(old))
	for name, e := range old {
		if e.Kind == Dir { // whatever its mode: what is in it may have to change
			if err := root.Chmod(name, fs.FileMode(e.Mode)|0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	for _, name := range names {
		e, ok := kept[name]
		if was := old[name]; ok && e.Kind == was.Kind && (e.Kind != Link || e.Target == was.Target) {
			continue
		}
		err := root.Remove(name)
		if ok && err != nil && old[name].Kind == Dir { // something else comes into its place
			err = root.RemoveAll(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && old[name].Kind != Dir {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

func makeDir(root *os.Root, name string) error {
	err := root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// write fetches what files are made of and makes them, each completely or not at all.
func write(ctx context.Context, root *os.Root, files []Entry, fetch Fetch) error {
	data := map[string][]byte{}
	var hashes []string
	for _, e := range files {
		for _, p := range e.Pieces {
			if _, ok := data[p]; !ok {
				data[p], hashes = nil, append(hashes, p)
			}
		}
	}
	if len(hashes) > 0 {
		if err := fetch(ctx, hashes, func(hash string, b []byte) error {
			if Hash(b) != hash {
				return fmt.Errorf("a piece is not %s", hash)
			}
			data[hash] = b
			return nil
		}); err != nil {
			return fmt.Errorf("fetch pieces: %w", err)
		}
	}
	for _, e := range files {
		if err := one(root, e, data); err != nil {
			return fmt.Errorf("write %s: %w", e.Path, err)
		}
	}
	return nil
}

func one(root *os.Root, e Entry, data map[string][]byte) error {
	tmp := path.Join(path.Dir(e.Path), half+path.Base(e.Path)[:min(len(path.Base(e.Path)), 100)])
	if err := root.RemoveAll(tmp); err != nil {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	size := int64(0)
	for _, p := range e.Pieces {
		b := data[p]
		if b == nil {
			err = errors.Join(err, fmt.Errorf("piece %s is not there", p))
			break
		}
		n, wrong := f.Write(b)
		size, err = size+int64(n), errors.Join(err, wrong)
	}
	if err == nil && size != e.Size {
		err = fmt.Errorf("it has %d bytes, not %d", size, e.Size)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Chmod(tmp, fs.FileMode(e.Mode))
	}
	if err == nil {
		err = root.Rename(tmp, e.Path)
	}
	if err != nil {
		return errors.Join(err, root.RemoveAll(tmp))
	}
	return nil
}
