package workdir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/workdir"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
	ok(t, os.WriteFile(path, []byte(text), 0o600))
	ok(t, os.Chmod(path, mode))
}

func scanned(t *testing.T, dir string, l workdir.Limits) workdir.Tree {
	t.Helper()
	tree, _, err := workdir.Scan(t.Context(), dir, l, workdir.Seen{})
	ok(t, err)
	return tree
}

// from answers pieces of another directory, and counts them.
func from(t *testing.T, dir string, tree workdir.Tree, n *int) workdir.Fetch {
	return func(ctx context.Context, hashes []string, found func(string, []byte) error) error {
		want := map[string]bool{}
		for _, h := range hashes {
			want[h] = true
		}
		return tree.Each(ctx, dir, nil, func(h string, b []byte) error {
			if !want[h] {
				return nil
			}
			*n++
			return found(h, b)
		})
	}
}

// A directory is made again elsewhere with its files, links, modes and deletions; what
// is the same is not fetched, and what is ignored stays.
func TestLay(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	put(t, a, "x/run.sh", "#!/bin/sh\n", 0o750)
	put(t, a, "x/y/big", strings.Repeat("0123456789abcdef", 80_000), 0o640)
	put(t, a, "same", "same", 0o600)
	put(t, a, "twin", "same", 0o600)
	put(t, a, "empty", "", 0o400)
	put(t, a, "node_modules/m", "m", 0o600)
	put(t, a, "ro/in", "in", 0o600)
	ok(t, os.Symlink("../../etc/passwd", filepath.Join(a, "x/link")))
	ok(t, syscall.Mkfifo(filepath.Join(a, "pipe"), 0o600))
	ok(t, os.Chmod(filepath.Join(a, "ro"), 0o500))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(a, "ro"), 0o700); _ = os.Chmod(filepath.Join(b, "ro"), 0o700) })
	put(t, b, "same", "same", 0o644)
	put(t, b, "x", "was a file", 0o600)
	put(t, b, "empty/was", "a directory", 0o600)
	put(t, b, "old/er", "gone", 0o600)
	put(t, b, "node_modules/mine", "mine", 0o600)
	l := workdir.Limits{Ignore: []string{"node_modules"}}
	want := scanned(t, a, l)
	manifest, hash, err := want.Encode()
	ok(t, err)
	if want, err = workdir.Decode(manifest); err != nil {
		t.Fatal(err)
	}
	n := 0
	ok(t, workdir.Lay(t.Context(), b, scanned(t, b, l), want, l.Ignore, from(t, a, want, &n)))
	if _, got, err := scanned(t, b, l).Encode(); err != nil || got != hash || n != 5 {
		t.Errorf("%s, not %s, with %d pieces, %v: %+v", got, hash, n, err, scanned(t, b, l))
	}
	for name, there := range map[string]bool{"node_modules/mine": true, "node_modules/m": false, "old": false, "pipe": false} {
		if _, err := os.Lstat(filepath.Join(b, name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
	n = 0
	ok(t, workdir.Lay(t.Context(), b, scanned(t, b, l), want, l.Ignore, from(t, a, want, &n)))
	if n != 0 {
		t.Errorf("%d pieces were fetched again", n)
	}
}

// SECURITY S8: a manifest is input; nothing leaves the directory, through a link of
// the directory neither.
func TestHostileManifest(t *testing.T) {
	one := func(entries string) []byte { return []byte(`{"entries":[` + entries + `]}`) }
	for _, m := range [][]byte{
		[]byte(`x`), []byte(`{"entries":[],"more":1}`),
		one(`{"p":"../x","k":"f"}`), one(`{"p":"/etc/x","k":"f"}`), one(`{"p":"a/../../x","k":"f"}`), one(`{"p":"a/./b","k":"f"}`), one(`{"p":".","k":"d"}`), one(`{"p":"","k":"d"}`),
		one(`{"p":"a/b","k":"f"}`), one(`{"p":"a","k":"l","t":"/etc"},{"p":"a/passwd","k":"f"}`), one(`{"p":"a","k":"f"},{"p":"a","k":"f"}`), one(`{"p":"b","k":"f"},{"p":"a","k":"f"}`),
		one(`{"p":"a","k":"x"}`), one(`{"p":"a","k":"f","m":2541}`), one(`{"p":"a","k":"f","s":1}`), one(`{"p":"a","k":"f","s":-1}`), one(`{"p":"a","k":"f","s":1,"c":["xy"]}`), one(`{"p":"a","k":"l"}`),
	} {
		if got, err := workdir.Decode(m); err == nil {
			t.Errorf("%s was taken: %+v", m, got)
		}
	}
	dir, outside := t.TempDir(), t.TempDir()
	ok(t, os.Symlink(outside, filepath.Join(dir, "d")))
	put(t, outside, "secret", "s", 0o600)
	if got := scanned(t, dir, workdir.Limits{}); len(got.Entries) != 1 || got.Entries[0].Kind != workdir.Link {
		t.Errorf("a link was followed: %+v", got)
	}
	// The directory that is laid says nothing of the link that stands in it.
	want := workdir.Tree{Entries: []workdir.Entry{{Path: "d", Kind: workdir.Dir, Mode: 0o700}, {Path: "d/f", Kind: workdir.File, Mode: 0o600}}}
	_ = workdir.Lay(t.Context(), dir, workdir.Tree{}, want, nil, nil)
	if _, err := os.Stat(filepath.Join(outside, "f")); err == nil {
		t.Error("it was written through a link")
	}
}

// What is too large is told and left alone; what has not changed is not read again, and
// a piece that is not what it was is not told.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a", strings.Repeat("a", 3<<20), 0o600)
	var large *workdir.TooLarge
	if _, _, err := workdir.Scan(t.Context(), dir, workdir.Limits{MaxBytes: 2 << 20}, workdir.Seen{}); !errors.As(err, &large) || !strings.Contains(large.What, "2 MiB") {
		t.Errorf("%v", err)
	}
	tree := scanned(t, dir, workdir.Limits{MaxBytes: 3 << 20})
	if len(tree.Pieces()) != 1 || tree.Size() != 3<<20 { // six times the same
		t.Errorf("%+v", tree)
	}
	put(t, dir, "a", strings.Repeat("b", 3<<20), 0o600)
	ok(t, tree.Each(t.Context(), dir, nil, func(string, []byte) error { return errors.New("told") }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := workdir.Scan(ctx, dir, workdir.Limits{}, workdir.Seen{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if tree, out, err := workdir.Scan(t.Context(), filepath.Join(dir, "none"), workdir.Limits{}, workdir.Seen{}); err != nil || len(tree.Entries)+len(out) != 0 {
		t.Errorf("none: %v", err)
	}
	for i := range workdir.MaxFiles + 1 {
		ok(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o700))
	}
	if _, _, err := workdir.Scan(t.Context(), dir, workdir.Limits{}, workdir.Seen{}); !errors.As(err, &large) {
		t.Error(err)
	}
}

// A Lay that is broken off is finished by the next one.
func TestBrokenOff(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for i := range 20 {
		put(t, a, fmt.Sprint("d/", i), fmt.Sprint("text ", i), 0o600)
	}
	want := scanned(t, a, workdir.Limits{})
	n := 0
	all := from(t, a, want, &n)
	broken := func(ctx context.Context, hashes []string, found func(string, []byte) error) error {
		return all(ctx, hashes[:7], found)
	}
	if err := workdir.Lay(t.Context(), b, workdir.Tree{}, want, nil, broken); err == nil {
		t.Fatal("pieces that are not there were not missed")
	}
	put(t, b, "d/.theclaw-half-8", "torn", 0o600)
	ok(t, workdir.Lay(t.Context(), b, scanned(t, b, workdir.Limits{}), want, nil, all))
	if fmt.Sprint(scanned(t, b, workdir.Limits{})) != fmt.Sprint(want) {
		t.Errorf("%+v", scanned(t, b, workdir.Limits{}))
	}
}

// FuzzDecode: whatever a manifest says, what is taken of it is below the directory.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"entries":[{"p":"a","k":"d","m":448},{"p":"a/b","k":"l","t":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, err := workdir.Decode(b)
		if err != nil {
			return
		}
		for _, e := range tree.Entries {
			if !filepath.IsLocal(e.Path) {
				t.Errorf("%q", e.Path)
			}
		}
		if _, _, err := tree.Encode(); err != nil {
			t.Error(err)
		}
	})
}

// F5: names are bytes. What programs make with strange names is brought to another machine
// as it is, a manifest holds each in one way only, and what is no file, directory or link
// is named.
func TestStrangeNames(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	names := []string{"a\xffb", "\xff\xfe", `back\slash`, "new\nline", "-rf", strings.Repeat("n", 255), strings.Repeat("\xff", 255), "*?[a]", " ", "\u202egpj", "d\xff/in\xfe", `d\/x`}
	for _, n := range names {
		put(t, a, n, "of "+n, 0o600)
	}
	ok(t, os.Symlink("a\xffb", filepath.Join(a, "link\xfe")))
	ok(t, os.Symlink("loop", filepath.Join(a, "loop")))
	ok(t, syscall.Mkfifo(filepath.Join(a, "pipe\xff"), 0o600))
	want, out, err := workdir.Scan(t.Context(), a, workdir.Limits{}, workdir.Seen{})
	ok(t, err)
	if fmt.Sprint(out) != `["pipe\xff" (it is a pipe)]` {
		t.Errorf("left out: %v", out)
	}
	manifest, hash, err := want.Encode()
	ok(t, err)
	got, err := workdir.Decode(manifest)
	ok(t, err)
	n := 0
	ok(t, workdir.Lay(t.Context(), b, workdir.Tree{}, got, nil, from(t, a, got, &n)))
	if _, again, err := scanned(t, b, workdir.Limits{}).Encode(); err != nil || again != hash {
		t.Errorf("%+v, %v", scanned(t, b, workdir.Limits{}), err)
	}
	for _, n := range names {
		if text, err := os.ReadFile(filepath.Join(b, n)); err != nil || string(text) != "of "+n {
			t.Errorf("%q: %q, %v", n, text, err)
		}
	}
	if target, err := os.Readlink(filepath.Join(b, "link\xfe")); target != "a\xffb" {
		t.Errorf("%q, %v", target, err)
	}
	for _, m := range []string{`{"p":"a","rp":"/w==","k":"f"}`, `{"p":"","rp":"YQ==","k":"f"}`, `{"p":"","rp":"Li4v/w==","k":"f"}`, `{"p":"","rp":"/wA=","k":"f"}`} {
		if got, err := workdir.Decode([]byte(`{"entries":[` + m + `]}`)); err == nil {
			t.Errorf("%s was taken: %+v", m, got)
		}
	}
}

// F6: a directory thousands of levels deep is scanned at once, and reported as too large.
func TestDeep(t *testing.T) {
	dir := t.TempDir()
	at, err := os.OpenRoot(dir)
	ok(t, err)
	for range 3000 {
		ok(t, at.Mkdir("d", 0o700))
		next, err := at.OpenRoot("d")
		ok(t, errors.Join(err, at.Close()))
		at = next
	}
	ok(t, at.Close())
	var large *workdir.TooLarge
	if _, _, err := scanned(t, dir, workdir.Limits{}).Encode(); !errors.As(err, &large) {
		t.Errorf("%v", err)
	}
}
