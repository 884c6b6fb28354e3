package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a call has changed can be shown later, also after a command has changed the files again.
func TestDiffs(t *testing.T) {
	c, _ := three(t)
	at := c.Place.Config.GetWorkdir()
	if diffs, err := Diffs(at, c.Key); err != nil || diffs != nil {
		t.Fatalf("before the call: %v %v", diffs, err)
	}
	w := writerOf(t, namePatch)
	if r := w.Run(t.Context(), c); r.IsError {
		t.Fatal(r.Text)
	}
	w.Finished(c)
	ok(t, os.WriteFile(filepath.Join(at, "one"), []byte("later\n"), 0o600))
	diffs, err := Diffs(at, c.Key)
	if err != nil || len(diffs) != 3 {
		t.Fatalf("%+v %v", diffs, err)
	}
	for i, want := range []string{
		"--- a/one\n+++ b/one\n@@ -1 +1,2 @@\n-1\n+one\n+more\n",
		"--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n",
		"--- /dev/null\n+++ b/new/dir/three\n@@ -0,0 +1 @@\n+3\n",
	} {
		if diffs[i].Text != want {
			t.Errorf("%s:\n%swant\n%s", diffs[i].Path, diffs[i].Text, want)
		}
	}
	if diffs, err := Diffs(filepath.Join(at, "missing"), c.Key); err != nil || diffs != nil {
		t.Errorf("without a directory: %v %v", diffs, err)
	}
	ok(t, os.WriteFile(filepath.Join(at, beforeDir(c), manifestFile), []byte("{"), 0o600))
	if _, err := Diffs(at, c.Key); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("a damaged manifest: %v", err)
	}
	ok(t, errors.Join(os.Remove(filepath.Join(at, beforeDir(c), manifestFile)), os.Symlink("/etc/passwd", filepath.Join(at, beforeDir(c), manifestFile))))
	if diffs, err := Diffs(at, c.Key); err == nil {
		t.Errorf("a link that leads out: %+v", diffs)
	}
}

// A difference that is no text, or too large, is one line, and the diffs of one call are bounded.
func TestDiffsAreBounded(t *testing.T) {
	lines := func(n int, word string) []byte { return []byte(strings.Repeat(word+"\n", n)) }
	changes := []change{
		{entry: entry{Path: "binary", Before: "x", After: "y"}, before: []byte("a\x00"), after: []byte("b")},
		{entry: entry{Path: "large", Before: "x", After: "y"}, before: lines(maxDiffed/4, "one"), after: lines(maxDiffed/4+1, "one")},
		{entry: entry{Path: "first", After: "y"}, after: lines(maxDiffs/8, "first")},
		{entry: entry{Path: "second", After: "y"}, after: lines(maxDiffs/8, "second")},
		{entry: entry{Path: "small", Before: "x"}, before: []byte("1\n")},
	}
	compare(changes)
	for i, want := range []string{
		"a/binary and b/binary differ: not text (2 bytes before, 1 after)\n",
		"a/large and b/large differ: too large to compare (1048576 bytes before, 1048580 after)\n",
		"",
		"/dev/null and b/second differ: the difference is too large to keep (0 bytes before, 229376 after)\n",
		"--- a/small\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n",
	} {
		if want != "" && changes[i].Diff != want {
			t.Errorf("%s: %.200s", changes[i].Path, changes[i].Diff)
		}
	}
	if d := changes[2].Diff; !strings.HasPrefix(d, "--- /dev/null\n+++ b/first\n@@ -0,0 +1,") || strings.Count(d, "+first\n") != maxDiffs/8 {
		t.Errorf("%.200s", d)
	}
}
