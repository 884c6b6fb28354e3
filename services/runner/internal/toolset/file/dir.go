package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/filetree"
)

const (
	// maxPath bounds a path, in bytes, as the system does.
	maxPath = 4096
	// maxElements bounds the directories and links on the way to one file.
	maxElements = 256
	// maxLinks bounds the symbolic links on the way, as the system does.
	maxLinks = 40
	// maxFile bounds a file that is changed, in bytes: old and new content are in memory.
	maxFile = 16 << 20
)

// dir is the open working directory of a call.
type dir struct {
	*os.Root
	path     string
	uid, gid int // its owner
	// outside translates an absolute path of programs into one of this machine; nil: they are the same.
	outside func(path string) string
}

// openDir opens a working directory, and makes it when there is none.
func openDir(at string) (*dir, error) {
	if !filepath.IsAbs(at) {
		return nil, errors.New("the working directory cannot be used: its path is not absolute; the owner of the agent has to set it")
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, fmt.Errorf("the working directory cannot be made: %w", err)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, fmt.Errorf("the working directory cannot be opened: %w", err)
	}
	d := &dir{Root: root, path: filepath.Clean(at)}
	info, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	d.uid, d.gid = owner(info)
	return d, nil
}

// owner are the user and group of a file.
func owner(info fs.FileInfo) (uid, gid int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return os.Geteuid(), os.Getegid()
}

// shown is a path in a text for the model.
func shown(name string) string { return boundary.Name(name) }

func outside(arg string) error {
	return fmt.Errorf("%s is outside of the working directory, which the file tools cannot leave: use a path inside of it", shown(arg))
}

// resolve finds what a path of the model leads to. It returns the path below the working
// directory, without links, and what is there; nil: nothing. The file tools open files by
// this path, which is also how two paths to one file are recognized.
func (d *dir) resolve(arg string) (string, fs.FileInfo, error) {
	switch {
	case arg == "":
		return "", nil, errors.New("path is empty: name a file or directory in the working directory")
	case len(arg) > maxPath:
		return "", nil, fmt.Errorf("the path has %d bytes, and the system allows %d: use a shorter one", len(arg), maxPath)
	case strings.ContainsRune(arg, 0):
		return "", nil, errors.New("the path contains a NUL byte, which no file name has: remove it")
	}
	elements, err := d.elements(arg)
	if err != nil {
		return "", nil, outside(arg)
	}
	at, links := ".", 0
	for n := 0; len(elements) > 0; n++ {
		if n == maxElements {
			return "", nil, fmt.Errorf("%s leads through more than %d directories and links: use a shorter path", shown(arg), maxElements)
		}
		next := path.Join(at, elements[0])
		if elements = elements[1:]; !filepath.IsLocal(next) {
			return "", nil, outside(arg)
		}
		info, err := d.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if slices.Contains(elements, "..") {
				return "", nil, problem(arg, err)
			}
			return path.Join(append([]string{next}, elements...)...), nil, nil
		case err != nil:
			return "", nil, problem(arg, err)
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", nil, fmt.Errorf("%s leads through more than %d links, which may be a loop: name the file itself", shown(arg), maxLinks)
			}
			target, err := d.Readlink(next)
			if err != nil {
				return "", nil, problem(arg, err)
			}
			to, err := d.elements(target)
			if err != nil {
				return "", nil, outside(arg)
			}
			if filepath.IsAbs(target) {
				at = "."
			}
			elements = append(to, elements...)
		case len(elements) > 0 && !info.IsDir():
			return "", nil, fmt.Errorf("%s cannot be reached: %s is %s and not a directory", shown(arg), shown(next), kind(info))
		default:
			at = next
		}
	}
	info, err := d.Lstat(at)
	if err != nil {
		return "", nil, problem(arg, err)
	}
	return at, info, nil
}

// elements divides a path, or the target of a link; one that is absolute has to be inside
// of the working directory.
func (d *dir) elements(name string) ([]string, error) {
	if filepath.IsAbs(name) {
		if d.outside != nil {
			name = d.outside(name)
		}
		rel, err := filepath.Rel(d.path, name)
		if err != nil || !filepath.IsLocal(rel) {
			return nil, errors.New("the path is outside")
		}
		name = rel
	}
	var out []string
	for e := range strings.SplitSeq(name, "/") {
		if e != "" && e != "." {
			out = append(out, e)
		}
	}
	return out, nil
}

// find is resolve for what has to exist.
func (d *dir) find(arg string) (string, fs.FileInfo, error) {
	name, info, err := d.resolve(arg)
	if err == nil && info == nil {
		err = problem(arg, fs.ErrNotExist)
	}
	return name, info, err
}

// openFile opens a regular file for reading. It does not wait, and follows no link.
func (d *dir) openFile(name string, info fs.FileInfo) (*os.File, error) {
	if err := regular(name, info); err != nil {
		return nil, err
	}
	f, err := filetree.Open(d.Root, name)
	if err != nil {
		return nil, problem(name, err)
	}
	opened, err := f.Stat() // a program may have put another file in its place
	if err == nil {
		err = regular(name, opened)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// regular refuses what is not a regular file, or one that has other names. These may be
// outside of the working directory, and no open could see it.
func regular(name string, info fs.FileInfo) error {
	if info.IsDir() {
		return fmt.Errorf("%s is a directory: list it with ls, or name a file in it", shown(name))
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is %s: the file tools read and change regular files only", shown(name), kind(info))
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		return fmt.Errorf("%s has a second name (a hard link), which may be outside of the working directory: copy it with a command and use the copy", shown(name))
	}
	return nil
}

// content reads a file that is to be changed.
func (d *dir) content(name string, info fs.FileInfo) ([]byte, error) {
	f, err := d.openFile(name, info)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, problem(name, err)
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB: change it with a command", shown(name), maxFile>>20)
	}
	return b, nil
}

// kind describes what is at a path.
func kind(info fs.FileInfo) string {
	switch {
	case info.IsDir():
		return "a directory"
	case info.Mode().IsRegular():
		return "a file"
	}
	return filetree.Kind(info.Mode())
}

// problem is an error of the system for the model.
func problem(name string, err error) error {
	why := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "does not exist: list the directory with ls, or search with find"
	case errors.Is(err, fs.ErrPermission):
		why = "may not be accessed: its mode does not permit it"
	case errors.Is(err, syscall.ENAMETOOLONG):
		why = "has a name that is too long for the system: use a shorter one"
	case errors.Is(err, syscall.ENOTDIR):
		why = "cannot be reached: a file is where a directory is needed"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		why = "cannot be written: the disk is full, remove something first"
	default:
		return fmt.Errorf("%s cannot be used: %w", shown(name), filetree.Cause(err))
	}
	return fmt.Errorf("%s %s", shown(name), why)
}
