// Package rotated owns the files that a full log or a full events.jsonl was
// renamed to: NAME-<YYYYMMDD-HHmmss>[-n].SUFFIX. It finds them by their age and
// removes them. The file that is written to has another name and is never touched.
//
// It promises to look at nothing but regular files of such names in the one
// directory, and to leave no gap: parts go from the oldest on, and none after one
// that stays. It does not decide what is old.
package rotated

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const stamp = "20060102-150405"

// File is one part.
type File struct {
	Name string
	At   time.Time // of its last line: the later of its name and its change
	Size int64

	stamp  time.Time
	number int // of those within one second
}

// Find answers the parts in dir of the file PREFIX.SUFFIX, the oldest first. A
// directory that is not there has none.
func Find(dir, prefix, suffix string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var out []File
	for _, e := range entries {
		f, ok := parse(e.Name(), prefix+"-", "."+suffix)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		f.Size, f.At = info.Size(), f.stamp
		if info.ModTime().After(f.At) {
			f.At = info.ModTime()
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return cmp.Or(a.stamp.Compare(b.stamp), a.number-b.number) })
	return out, nil
}

func parse(name, prefix, suffix string) (File, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return File{}, false
	}
	if rest, ok = strings.CutSuffix(rest, suffix); !ok || len(rest) < len(stamp) {
		return File{}, false
	}
	f := File{Name: name, number: 1}
	var err error
	if f.stamp, err = time.ParseInLocation(stamp, rest[:len(stamp)], time.UTC); err != nil {
		return File{}, false
	}
	if rest = rest[len(stamp):]; rest != "" {
		n, ok := strings.CutPrefix(rest, "-")
		if f.number, err = strconv.Atoi(n); !ok || err != nil {
			return File{}, false
		}
	}
	return f, true
}

// Old cuts off those before which none is younger than before; the newest spare
// parts stay in any case and are counted in kept, when they are old.
func Old(files []File, before time.Time, spare int) (old []File, kept int) {
	n := slices.IndexFunc(files, func(f File) bool { return !f.At.Before(before) })
	if n < 0 {
		n = len(files)
	}
	most := min(n, max(0, len(files)-spare))
	return files[:most], n - most
}

// Remove removes parts of dir, the oldest first; one that is gone is no error.
func Remove(dir string, files []File) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, f := range files {
		if err := root.Remove(f.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
