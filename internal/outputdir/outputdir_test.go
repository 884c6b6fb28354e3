package outputdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// S1-50, S1-51: a complete output is written once for a call, and again when the call is made again.
func TestWrite(t *testing.T) {
	at := t.TempDir()
	var name string
	for _, text := range []string{"first", strings.Repeat("é", 100)} {
		var err error
		name, err = Write(at, "web_fetch", "turn:tool:1:1", text, Keep{})
		ok(t, err)
		b, err := os.ReadFile(filepath.Join(at, name))
		info, e := os.Stat(filepath.Join(at, name))
		if ok(t, errors.Join(err, e)); string(b) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v", b, info.Mode())
		}
	}
	if other, err := Write(at, "web_fetch", "turn:tool:1:2", "x", Keep{}); err != nil || other == name || !ours().MatchString(filepath.Base(other)) {
		t.Errorf("%s %v", other, err)
	}
	if _, err := Write(filepath.Join(at, "missing"), "web_fetch", "k", "x", Keep{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a working directory: %v", err)
	}
}

// A program cannot make it write somewhere else.
func TestLinks(t *testing.T) {
	for name, link := range map[string]func(at, outside string) error{
		"directory": func(at, outside string) error { return os.Symlink(outside, filepath.Join(at, Dir)) },
		"file": func(at, outside string) error {
			return errors.Join(os.Mkdir(filepath.Join(at, Dir), 0o700), os.Symlink(filepath.Join(outside, "file"), filepath.Join(at, Dir, "read-"+Digest("k")+".txt")))
		},
	} {
		at, outside := t.TempDir(), t.TempDir()
		ok(t, os.WriteFile(filepath.Join(outside, "file"), []byte("theirs"), 0o600))
		ok(t, link(at, outside))
		_, err := Write(at, "read", "k", "ours", Keep{})
		b, e := os.ReadFile(filepath.Join(outside, "file"))
		entries, _ := os.ReadDir(outside)
		if ok(t, e); string(b) != "theirs" || len(entries) != 1 || (err == nil) != (name == "file") {
			t.Errorf("%s: %q, %d entries outside, %v", name, b, len(entries), err)
		}
	}
}

// A pipe in the place of the directory, which a program can put there, is not waited for.
func TestPipe(t *testing.T) {
	at := t.TempDir()
	ok(t, syscall.Mkfifo(filepath.Join(at, Dir), 0o600))
	if _, err := Write(at, "web_fetch", "k", "x", Keep{}); !errors.Is(err, syscall.ENOTDIR) {
		t.Error(err)
	}
}

// What is old goes, the oldest of what is too much too, and what others wrote stays.
func TestPrune(t *testing.T) {
	at, now := t.TempDir(), time.Now()
	put := func(name string, age time.Duration, size int) {
		full := filepath.Join(at, Dir, name)
		if strings.HasSuffix(name, ".txt") || strings.HasSuffix(name, ".log") {
			ok(t, errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, make([]byte, size), 0o600)))
		} else {
			ok(t, errors.Join(os.MkdirAll(full, 0o700), os.WriteFile(filepath.Join(full, "0"), make([]byte, size), 0o600)))
		}
		ok(t, os.Chtimes(full, now.Add(-age), now.Add(-age)))
	}
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		age  time.Duration
		size int
		want bool
	}{
		".tx-0123456789abcdef":           {25 * time.Hour, 1, false},
		".tx-0123456789abcdee":           {23 * time.Hour, 1, true},
		"before-0123456789abcdef":        {4 * day, 1, false},
		"before-0123456789abcdee":        {2 * day, 400, true},
		"web_fetch-0123456789abcdef.txt": {4 * day, 1, false},
		"web_fetch-0123456789abcdee.txt": {2*day + time.Hour, 500, true},
		"output-abcdefghijkl.txt":        {2*day + 2*time.Hour, 200, false}, // too much
		"p-7f3a.log":                     {time.Hour, 100, true},
		"mine.txt":                       {100 * day, 10_000, true},
		".tx-mine":                       {100 * day, 1, true},
	} {
		put(name, c.age, c.size)
		t.Cleanup(func() {
			if _, err := os.Lstat(filepath.Join(at, Dir, name)); (err == nil) != c.want {
				t.Errorf("%s is there: %v", name, err == nil)
			}
		})
	}
	root, err := os.OpenRoot(at)
	ok(t, err)
	defer root.Close()
	Prune(root, Keep{Age: 3 * day, Bytes: 1000}, now)
}
