package filetree_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/filetree"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	ok(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func walk(t testing.TB, root *os.Root, top string) (paths, failed []string) {
	t.Helper()
	ok(t, filetree.Walk(t.Context(), root, top, func(e filetree.Entry) error {
		paths = append(paths, e.Path)
		if e.Name() == "skipped" {
			return fs.SkipDir
		}
		return nil
	}, func(path string, err error) { failed = append(failed, path+": "+err.Error()) }))
	return paths, failed
}

// Directories come after the other entries, links are not followed, and names are bytes.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a/b", "skipped/in", "z"} {
		ok(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	for _, f := range []string{"a/b/1", "a/2", "m\xff", "skipped/in/3"} {
		ok(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
	}
	ok(t, os.Symlink("..", filepath.Join(dir, "z", "up")))
	ok(t, syscall.Mkfifo(filepath.Join(dir, "z", "pipe"), 0o600))
	root := open(t, dir)
	for top, want := range map[string][]string{
		".":     {"a", "m\xff", "skipped", "z", "a/2", "a/b", "a/b/1", "z/pipe", "z/up"},
		"a":     {"a", "a/2", "a/b", "a/b/1"},
		"a/b":   {"a/b", "a/b/1"},
		"m\xff": {"m\xff"},
		"none":  nil,
	} {
		if got, failed := walk(t, root, top); !slices.Equal(got, want) || failed != nil {
			t.Errorf("%q: %q, failed %v, want %q", top, got, failed, want)
		}
	}
	ok(t, filetree.Walk(t.Context(), root, "z", func(e filetree.Entry) error {
		if f, err := e.Open(); err == nil {
			t.Errorf("%s was opened", e.Path)
			return f.Close()
		}
		return nil
	}, func(path string, err error) { t.Errorf("%s: %v", path, err) }))
	stop := errors.New("stop")
	if err := filetree.Walk(t.Context(), root, ".", func(filetree.Entry) error { return stop }, nil); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := filetree.Walk(ctx, root, ".", func(filetree.Entry) error { return nil }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// F6: a tree of thousands of levels is walked in one pass, with few descriptors and
// without a path for the system; work that is left at each level is found again.
func TestDeep(t *testing.T) {
	const depth = 3000
	dir := t.TempDir()
	at := open(t, dir)
	for range depth {
		ok(t, at.Mkdir("d", 0o700))
		ok(t, at.Mkdir("e", 0o700))
		f, err := at.Create("f")
		ok(t, errors.Join(err, f.Close()))
		next, err := at.OpenRoot("d")
		ok(t, err)
		t.Cleanup(func() { _ = next.Close() })
		at = next
	}
	most, entries, root := 0, 0, open(t, dir)
	before := descriptors(t)
	ok(t, filetree.Walk(t.Context(), root, ".", func(filetree.Entry) error {
		if entries++; entries%500 == 0 {
			most = max(most, descriptors(t))
		}
		return nil
	}, func(path string, err error) { t.Errorf("%s: %v", path, err) }))
	if entries != 3*depth || most-before > 80 {
		t.Errorf("%d entries, %d descriptors", entries, most-before)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all)
}

// A directory beyond the longest path is reported, and the rest is visited.
func TestTooDeep(t *testing.T) {
	dir, name := t.TempDir(), strings.Repeat("n", 255)
	at := open(t, dir)
	for range filetree.MaxPath/256 + 2 {
		ok(t, at.Mkdir(name, 0o700))
		next, err := at.OpenRoot(name)
		ok(t, err)
		t.Cleanup(func() { _ = next.Close() })
		at = next
	}
	ok(t, os.Mkdir(filepath.Join(dir, "z"), 0o700))
	paths, failed := walk(t, open(t, dir), ".")
	if len(failed) != 1 || !strings.HasSuffix(failed[0], filetree.ErrTooDeep.Error()) || paths[1] != "z" {
		t.Errorf("%d paths, failed %.100v", len(paths), failed)
	}
}

// A directory that is moved away while the walk is below it loses what was not visited yet.
func TestMoved(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.MkdirAll(filepath.Join(dir, "a"+strings.Repeat("/d", 200)), 0o700))
	ok(t, os.MkdirAll(filepath.Join(dir, "a/d/z/in"), 0o700))
	ok(t, os.Mkdir(filepath.Join(dir, "last"), 0o700))
	var last string
	n := 0
	ok(t, filetree.Walk(t.Context(), open(t, dir), ".", func(e filetree.Entry) error {
		if n++; n == 150 {
			ok(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "a")))
		}
		last = e.Path
		return nil
	}, func(path string, err error) { t.Errorf("%s: %v", path, err) }))
	if strings.HasSuffix(last, "in") {
		t.Error(last)
	}
	fmt.Fprintln(t.Output(), n, "entries")
}
