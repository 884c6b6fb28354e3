// Package outputdir keeps in a working directory what tools leave for later, in its directory
// .output: complete outputs of which a model has read a part, and the previous contents of files.
//
//	.output/web_fetch-0123456789abcdef.txt    a complete output, of the call with that digest
//	.output/output-abcdefghijkl.txt           the rest of what a command printed (package sandbox)
//	.output/before-0123456789abcdef/          previous contents, of the call with that digest
//	.output/.tx-0123456789abcdef/             contents that are being written (package file of the runner)
//
// It promises that nothing is written or removed outside of the working directory, whatever links
// programs put there; that a file belongs to the owner of the directory; and that old ones are removed:
// those above the age, the oldest of those above the size, and staged contents that are not ready after a day.
//
// It does not make what it writes durable: an output can be lost with the power. It leaves files of
// other names alone, and does not keep programs from changing its files.
package outputdir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Dir is the name of the directory.
const Dir = ".output"

// MaxText bounds a complete output, in bytes; the rest of a longer one is dropped.
const MaxText = 64 << 20

const (
	// stagedAge is the age of staged contents that are not ready.
	stagedAge = 24 * time.Hour
	// maxEntries bounds the entries that are examined for old ones.
	maxEntries = 10_000
	// maxFiles bounds the files of a directory that are counted.
	maxFiles = 1000
)

// ours are the names that this package and the others of its doc comment make. Those of staged contents
// begin with a dot.
var ours = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(?:\.tx|before)-[0-9a-f]{16}|output-[a-z2-7]{12}\.txt|[a-z_]{1,64}-[0-9a-f]{16}\.txt|p-[0-9a-z]{1,16}\.log)$`)
})

// Keep is how much is kept.
type Keep struct {
	// Age is how long; 0 is 7 days.
	Age time.Duration
	// Bytes is how much together; 0 is 256 MiB.
	Bytes int64
}

func (k Keep) withDefaults() Keep {
	if k.Age <= 0 {
		k.Age = 7 * 24 * time.Hour
	}
	if k.Bytes <= 0 {
		k.Bytes = 256 << 20
	}
	return k
}

// Digest is the part of a name that stands for the key of a call.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])[:16]
}

// Write writes the complete output of a call of a tool, and removes what is old. The same call again
// replaces it. It returns the path below the working directory.
func Write(workdir, tool, key, text string, keep Keep) (name string, err error) {
	root, err := os.OpenRoot(workdir)
	if err != nil {
		return "", fmt.Errorf("open the working directory: %w", err)
	}
	defer func() { _ = root.Close() }() // the file is closed
	info, err := root.Stat(".")
	if err != nil {
		return "", fmt.Errorf("open the working directory: %w", err)
	}
	if err := root.Mkdir(Dir, 0o700); err == nil {
		err = give(func(uid, gid int) error { return root.Lchown(Dir, uid, gid) }, info)
		if err != nil {
			return "", fmt.Errorf("make %s: %w", Dir, err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make %s: %w", Dir, err)
	}
	Prune(root, keep, time.Now())
	name = path.Join(Dir, tool+"-"+Digest(key)+".txt")
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("replace %s: %w", name, err)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.WriteString(text[:min(len(text), MaxText)])
	if err = errors.Join(err, give(f.Chown, info), f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", name, err), root.Remove(name))
	}
	return name, nil
}

// give gives a file to the owner of the working directory. Only root can, and programs in the sandbox are
// not root.
func give(chown func(uid, gid int) error, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || st.Uid == 0 {
		return nil
	}
	return chown(int(st.Uid), int(st.Gid))
}

// kept is an entry that may stay.
type kept struct {
	name    string
	changed time.Time
	size    int64
}

// Prune removes what is old. What cannot be removed is tried again by the next call.
func Prune(root *os.Root, keep Keep, now time.Time) {
	keep = keep.withDefaults()
	f, err := root.OpenFile(Dir, os.O_RDONLY|syscall.O_DIRECTORY, 0) // a pipe is not waited for
	if err != nil {
		return
	}
	names, _ := f.Readdirnames(maxEntries) // what cannot be read stays
	_ = f.Close()                          // it was only read
	var rest []kept
	for _, name := range names {
		if !ours().MatchString(name) {
			continue
		}
		at, staged := path.Join(Dir, name), strings.HasPrefix(name, ".")
		info, err := root.Lstat(at)
		age := keep.Age
		if staged {
			age = max(age, stagedAge)
			if _, err := root.Lstat(path.Join(at, "ready")); err != nil {
				age = stagedAge // nothing was changed: a call that comes back starts again
			}
		}
		switch {
		case err != nil:
		case now.Sub(info.ModTime()) > age:
			_ = root.RemoveAll(at)
		case !staged:
			rest = append(rest, kept{at, info.ModTime(), size(root, at, info)})
		}
	}
	slices.SortFunc(rest, func(a, b kept) int { return b.changed.Compare(a.changed) })
	sum := int64(0)
	for _, k := range rest { // the newest first
		if sum += k.size; sum > keep.Bytes {
			_ = root.RemoveAll(k.name)
		}
	}
}

// size is the size of a file, or of the files in a directory, in bytes.
func size(root *os.Root, name string, info fs.FileInfo) (sum int64) {
	if !info.IsDir() {
		return info.Size()
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // it was only read
	files, _ := f.Readdir(maxFiles)  // what cannot be read counts nothing
	for _, info := range files {
		sum += info.Size()
	}
	return sum
}
