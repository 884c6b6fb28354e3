package workdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/filetree"
)

// Limits of what is kept.
type Limits struct {
	MaxBytes int64
	Ignore   []string // see Ignored
}

// Seen remembers what files held when they were last read, so that one that has not
// changed since is not read again. It belongs to one directory and one goroutine.
type Seen map[string]seen

type seen struct {
	stamp  stamp
	pieces []string
}

// errMoves reports that a file was written while it was read.
var errMoves = errors.New("a file changes while it is read")

// tries is how often a directory is read that changes meanwhile; the last reading
// stands, as a copy of a file that is being written does on one machine.
const tries = 3

// maxOut is how much of what is left out is named.
const maxOut = 1000

// Scan returns what a directory holds; none is an empty one. Beyond limits it is
// *TooLarge. What cannot be read, and what is neither a file nor a directory nor a link,
// is left out and named in out, as package boundary writes names.
func Scan(ctx context.Context, dir string, l Limits, was Seen) (t Tree, out []string, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Tree{}, nil, nil
	}
	if err != nil {
		return Tree{}, nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	for try := 1; ; try++ {
		s := scan{limits: l, was: was, now: Seen{}, last: try == tries}
		if err = filetree.Walk(ctx, root, ".", func(e filetree.Entry) error { return s.entry(ctx, e) }, s.leave); errors.Is(err, errMoves) {
			continue
		}
		if err != nil {
			return Tree{}, nil, err
		}
		clear(was)
		for k, v := range s.now {
			was[k] = v
		}
		slices.SortFunc(s.tree.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
		return s.tree, s.out, nil
	}
}

type scan struct {
	limits   Limits
	was, now Seen
	last     bool
	tree     Tree
	size     int64
	out      []string
}

// leave takes note of what cannot be read; what is gone meanwhile is not there.
func (s *scan) leave(name string, err error) {
	if !errors.Is(err, fs.ErrNotExist) && len(s.out) < maxOut {
		s.out = append(s.out, boundary.Name(name)+" ("+filetree.Cause(err).Error()+")")
	}
}

func (s *scan) entry(ctx context.Context, at filetree.Entry) error {
	name, info := at.Path, at.Info
	if Ignored(name, s.limits.Ignore) || strings.HasPrefix(at.Name(), half) {
		if info.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	var err error
	e := Entry{Path: name, Mode: uint32(info.Mode().Perm())}
	switch info.Mode().Type() {
	case fs.ModeDir:
		e.Kind = Dir
	case fs.ModeSymlink:
		e.Kind, e.Mode = Link, 0
		if e.Target, err = at.Dir.Readlink(at.Name()); err != nil {
			s.leave(name, err)
			return nil
		}
	case 0:
		e.Kind, e.Size = File, info.Size()
		if s.size += e.Size; s.limits.MaxBytes > 0 && s.size > s.limits.MaxBytes {
			return &TooLarge{fmt.Sprintf("it has more than %d MiB", s.limits.MaxBytes>>20)}
		}
		if old, ok := s.was[name]; ok && old.stamp == stampOf(info) {
			e.Pieces, s.now[name] = old.pieces, old
			break
		}
		err := s.read(ctx, at, &e)
		if errors.Is(err, errMoves) && !s.last || ctx.Err() != nil {
			return err
		}
		if err != nil && !errors.Is(err, errMoves) {
			s.leave(name, err)
			return nil
		}
	default:
		s.leave(name, errors.New("it is "+filetree.Kind(info.Mode())))
		return nil
	}
	s.tree.Entries = append(s.tree.Entries, e)
	if len(s.tree.Entries) > MaxFiles {
		return &TooLarge{fmt.Sprintf("it has more than %d files", MaxFiles)}
	}
	return nil
}

// read hashes a file. Its size is what was read.
func (s *scan) read(ctx context.Context, at filetree.Entry, e *Entry) error {
	f, err := at.Open()
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	before, err := f.Stat()
	if err != nil {
		return err
	}
	e.Size, e.Pieces = 0, nil
	buf := make([]byte, Piece)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(f, buf)
		if n > 0 {
			e.Size, e.Pieces = e.Size+int64(n), append(e.Pieces, Hash(buf[:n]))
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return err
		}
		if s.limits.MaxBytes > 0 && e.Size > s.limits.MaxBytes { // it grows faster than it is read
			return &TooLarge{fmt.Sprintf("it has more than %d MiB", s.limits.MaxBytes>>20)}
		}
	}
	after, err := f.Stat()
	if err != nil {
		return err
	}
	if stampOf(after) != stampOf(before) || after.Size() != e.Size {
		return errMoves
	}
	if stamp := stampOf(after); stamp.settled(time.Now()) {
		s.now[e.Path] = seen{stamp, e.Pieces}
	}
	return nil
}

// Each passes on the pieces of the directory that a tree was made of, each once, those of skip
// left out. One that is not what it was is left out too: the tree is old then.
func (t Tree) Each(ctx context.Context, dir string, skip map[string]bool, found func(hash string, data []byte) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	told, buf := map[string]bool{}, make([]byte, Piece)
	for _, e := range t.Entries {
		var f *os.File
		for i, p := range e.Pieces {
			if skip[p] || told[p] {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if f == nil {
				if f, err = filetree.Open(root, e.Path); err != nil {
					break
				}
			}
			n, err := f.ReadAt(buf[:min(Piece, e.Size-int64(i)*Piece)], int64(i)*Piece)
			if err != nil && err != io.EOF || Hash(buf[:n]) != p {
				continue
			}
			told[p] = true
			if err := found(p, slices.Clone(buf[:n])); err != nil {
				return errors.Join(err, f.Close())
			}
		}
		if f != nil {
			if err := f.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
