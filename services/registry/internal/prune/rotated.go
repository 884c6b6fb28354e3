package prune

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

// stamp is the time in the name of a rotated file: NAME-<YYYYMMDD-HHmmss>[-n].SUFFIX.
const stamp = "20060102-150405"

// rotatedFile is one file that a full log or a full events.jsonl was renamed to.
type rotatedFile struct {
	name  string
	at    time.Time // of its last line: the later of stamp and modification time
	size  int64
	stamp time.Time // in its name

	number int // among those of one second
}

// rotatedFiles returns the rotated files of PREFIX.SUFFIX in dir, the oldest first, and
// considers regular files only. The file that is still written to has another name. A
// missing directory has none.
func rotatedFiles(dir, prefix, suffix string) ([]rotatedFile, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var out []rotatedFile
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
		f.size, f.at = info.Size(), f.stamp
		if info.ModTime().After(f.at) {
			f.at = info.ModTime()
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b rotatedFile) int { return cmp.Or(a.stamp.Compare(b.stamp), a.number-b.number) })
	return out, nil
}

func parse(name, prefix, suffix string) (rotatedFile, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return rotatedFile{}, false
	}
	if rest, ok = strings.CutSuffix(rest, suffix); !ok || len(rest) < len(stamp) {
		return rotatedFile{}, false
	}
	f := rotatedFile{name: name, number: 1}
	var err error
	if f.stamp, err = time.ParseInLocation(stamp, rest[:len(stamp)], time.UTC); err != nil {
		return rotatedFile{}, false
	}
	if rest = rest[len(stamp):]; rest != "" {
		n, ok := strings.CutPrefix(rest, "-")
		if f.number, err = strconv.Atoi(n); !ok || err != nil {
			return rotatedFile{}, false
		}
	}
	return f, true
}

// oldest returns the leading files that were last written before the given time, so that
// removing them leaves no gap. The newest spare files stay in any case; kept counts those
// of them that are old.
func oldest(files []rotatedFile, before time.Time, spare int) (gone []rotatedFile, kept int) {
	n := slices.IndexFunc(files, func(f rotatedFile) bool { return !f.at.Before(before) })
	if n < 0 {
		n = len(files)
	}
	most := min(n, max(0, len(files)-spare))
	return files[:most], n - most
}

// remove removes rotated files of dir, the oldest first; a missing one is no error.
func remove(dir string, files []rotatedFile) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, f := range files {
		if err := root.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
