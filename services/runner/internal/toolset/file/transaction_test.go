package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// three is a call that patches three files, and the working directory for it.
func three(t *testing.T) (toolset.Call, map[string]string) {
	t.Helper()
	at := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(at, "one"), []byte("1\n"), 0o640))
	ok(t, os.WriteFile(filepath.Join(at, "gone"), []byte("gone\n"), 0o600))
	args, err := json.Marshal(map[string]string{"patch": "*** Begin Patch\n*** Update File: one\n-1\n+one\n+more\n*** Delete File: gone\n*** Add File: new/dir/three\n+3\n*** End Patch"})
	ok(t, err)
	return callOf(at, "threads/main:m1:tool:2:1", namePatch, args), map[string]string{"one": "one\nmore\n", "gone": "", "new/dir/three": "3\n"}
}

func callOf(at, key, name string, args []byte) toolset.Call {
	return toolset.Call{Key: key, Name: name, Args: args, Place: toolset.Place{Config: &registrypb.TurnConfig{Workdir: at}}}
}

// writerOf is a writer of a runner that has just been started.
func writerOf(t *testing.T, name string) *writer {
	t.Helper()
	for _, tool := range New(nil) {
		if w, ok := tool.(*writer); ok && w.spec.Name == name {
			return w
		}
	}
	t.Fatalf("no tool %s", name)
	return nil
}

// begin runs a call up to the point that the steps of its transaction reach: stop is given
// the transaction after it is staged.
func begin(t *testing.T, c toolset.Call, stop func(*transaction)) {
	t.Helper()
	d, err := openDir(c.Place.Config.GetWorkdir())
	ok(t, err)
	defer d.Close()
	changes, text, err := writerOf(t, c.Name).plan(t.Context(), d, c)
	ok(t, err)
	tx, err := stage(d, c, changes, text)
	ok(t, err)
	stop(tx)
}

func content(t *testing.T, c toolset.Call, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.Place.Config.GetWorkdir(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	ok(t, err)
	return string(b)
}

// stops are the instants of a transaction after which a runner may be killed.
func stops(t *testing.T) map[string]func(*transaction) {
	stops := map[string]func(*transaction){
		"TW1 staged":         func(*transaction) {},
		"TW2 ready":          func(tx *transaction) { ok(t, tx.commit()) },
		"TW3 all are placed": func(tx *transaction) { ok(t, errors.Join(tx.commit(), tx.apply())) },
	}
	for placed := 1; placed <= 2; placed++ {
		stops[fmt.Sprint("TW3 placed ", placed)] = func(tx *transaction) {
			ok(t, tx.commit())
			for i := range placed {
				ok(t, tx.place(i))
			}
		}
	}
	return stops
}

// S4-65, I44: a runner is killed at any instant of a patch of three files. The same call,
// made again, changes all three, once, and the model reads the same result.
func TestRollForward(t *testing.T) {
	for name, stop := range stops(t) {
		t.Run(name, func(t *testing.T) {
			c, want := three(t)
			begin(t, c, stop)
			if name == "TW1 staged" || name == "TW2 ready" { // nothing is changed before
				if content(t, c, "one") != "1\n" || content(t, c, "gone") != "gone\n" || content(t, c, "new/dir/three") != "" {
					t.Error("a file was changed before the transaction was applied")
				}
			}
			for range 2 { // also when it is killed before the result is journaled
				r := writerOf(t, namePatch).Run(t.Context(), c)
				if r.IsError || r.Text != "patched 3 files\nupdated one\ndeleted gone\nadded new/dir/three" {
					t.Fatalf("%+v", r)
				}
				for name, text := range want {
					if got := content(t, c, name); got != text {
						t.Errorf("%s is %q, want %q", name, got, text)
					}
				}
			}
			if info, err := os.Stat(filepath.Join(c.Place.Config.GetWorkdir(), "one")); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("%v %v", info, err)
			}
		})
	}
}

// A file that another writer has changed while the runner was down is not overwritten.
// When no file of the transaction was changed, none is; else the rest is.
func TestRollForwardOverOthers(t *testing.T) {
	for name, stop := range stops(t) {
		t.Run(name, func(t *testing.T) {
			c, _ := three(t)
			begin(t, c, stop)
			ok(t, os.WriteFile(filepath.Join(c.Place.Config.GetWorkdir(), "one"), []byte("other\n1\n"), 0o600))
			r := writerOf(t, namePatch).Run(t.Context(), c)
			one, gone, added := content(t, c, "one"), content(t, c, "gone"), content(t, c, "new/dir/three")
			switch name {
			case "TW1 staged": // it starts again, with what is there now
				if r.IsError || one != "other\none\nmore\n" || gone != "" || added != "3\n" {
					t.Errorf("%+v; %q %q %q", r, one, gone, added)
				}
			case "TW2 ready":
				if !r.IsError || !strings.Contains(r.Text, "one was changed by another writer while the change was prepared: no file was changed") || one != "other\n1\n" || gone != "gone\n" || added != "" {
					t.Errorf("%+v; %q %q %q", r, one, gone, added)
				}
				if _, err := os.Stat(filepath.Join(c.Place.Config.GetWorkdir(), stagedDir(c))); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the transaction is still there: %v", err)
				}
			default:
				if !r.IsError || !strings.Contains(r.Text, "one was changed by another writer during the change, and is left as it was; the other files of the call are changed") || one != "other\n1\n" || gone != "" || added != "3\n" {
					t.Errorf("%+v; %q %q %q", r, one, gone, added)
				}
				if again := writerOf(t, namePatch).Run(t.Context(), c); again.Text != r.Text {
					t.Errorf("the same call again: %q", again.Text)
				}
			}
		})
	}
}

// S4-65: a machine that was off for two days finishes what was begun, also when another conversation changes files first; what
// was only staged is removed.
func TestRollForwardLater(t *testing.T) {
	for name, stop := range stops(t) {
		c, want := three(t)
		begin(t, c, stop)
		staged, before := filepath.Join(c.Place.Config.GetWorkdir(), stagedDir(c)), time.Now().Add(-48*time.Hour)
		ok(t, os.Chtimes(staged, before, before))
		if r := writerOf(t, nameWrite).Run(t.Context(), callOf(c.Place.Config.GetWorkdir(), "other", nameWrite, []byte(`{"path":"other","content":"x"}`))); r.IsError {
			t.Fatal(r.Text)
		}
		if _, err := os.Stat(staged); (err == nil) != (name != "TW1 staged") {
			t.Errorf("%s: the transaction: %v", name, err)
		}
		r := writerOf(t, namePatch).Run(t.Context(), c)
		for path, text := range want {
			if got := content(t, c, path); r.IsError || got != text {
				t.Errorf("%s: %s, and %s is %q, want %q", name, r.Text, path, got, text)
			}
		}
	}
}

// S3-45, S4-65: write and edit are finished as a patch is. An edit whose text no longer
// occurs, because it was made, is not an error.
func TestRollForwardOfOneFile(t *testing.T) {
	for name, args := range map[string]string{
		nameWrite: `{"path":"f","content":"new"}`,
		nameEdit:  `{"path":"f","old_text":"old","new_text":"new"}`,
	} {
		for at, stop := range map[string]func(*transaction){
			"staged": func(*transaction) {},
			"ready":  func(tx *transaction) { ok(t, tx.commit()) },
			"placed": func(tx *transaction) { ok(t, errors.Join(tx.commit(), tx.apply())) },

			"changed since": func(tx *transaction) { ok(t, errors.Join(tx.commit(), tx.apply())) },
		} {
			c := callOf(t.TempDir(), "m1:tool:1:1", name, []byte(args))
			ok(t, os.WriteFile(filepath.Join(c.Place.Config.GetWorkdir(), "f"), []byte("old"), 0o600))
			begin(t, c, stop)
			if at == "changed since" { // it was made, so the model does not read that it was not
				ok(t, os.WriteFile(filepath.Join(c.Place.Config.GetWorkdir(), "f"), []byte("new and more"), 0o600))
				if r := writerOf(t, name).Run(t.Context(), c); !r.IsError || strings.Contains(r.Text, "no file was changed") || content(t, c, "f") != "new and more" {
					t.Errorf("%s, %s: %+v, %q", name, at, r, content(t, c, "f"))
				}
				continue
			}
			r := writerOf(t, name).Run(t.Context(), c)
			if r.IsError || content(t, c, "f") != "new" || !strings.HasPrefix(r.Text, map[string]string{nameWrite: "wrote f (replaced", nameEdit: "edited f: replaced 1"}[name]) {
				t.Errorf("%s, %s: %+v, %q", name, at, r, content(t, c, "f"))
			}
		}
	}
}

// here is a registry for a working directory that stays where it is.
type here struct{}

func (here) Restore(context.Context, toolset.Place) error { return nil }
func (here) Save(context.Context, toolset.Place) error    { return nil }

// Where the working directory moves, a transaction that a snapshot has stays until the next change, which comes before
// the next snapshot.
func TestFinishedInSnapshot(t *testing.T) {
	w := writerOf(t, nameWrite)
	w.workdirs = here{}
	at := t.TempDir()
	var calls []toolset.Call
	for n := range 3 {
		c := callOf(at, fmt.Sprint("m1:tool:1:", n), nameWrite, fmt.Appendf(nil, `{"path":"f","content":"%d"}`, n))
		c.Place.Config.WorkdirSync = true
		if r := w.Run(t.Context(), c); r.IsError {
			t.Fatal(r.Text)
		}
		for range 2 { // a turn that goes on reports it again
			w.Finished(c)
		}
		for i, earlier := range append(calls, c) {
			if _, err := os.Stat(filepath.Join(at, stagedDir(earlier))); (err == nil) != (i == n) {
				t.Errorf("after %d changes, the transaction of change %d: %v", n+1, i+1, err)
			}
		}
		calls = append(calls, c)
	}
	for n := range maxFinished + 1 {
		w.finished.add(fmt.Sprint("other ", n), "x")
	}
	if len(w.finished.of) > maxFinished {
		t.Errorf("%d directories are remembered", len(w.finished.of))
	}
}

// The previous contents and the manifest stay; the transaction goes when the result is in
// the journal.
func TestFinished(t *testing.T) {
	c, _ := three(t)
	at := c.Place.Config.GetWorkdir()
	w := writerOf(t, namePatch)
	if r := w.Run(t.Context(), c); r.IsError {
		t.Fatal(r.Text)
	}
	staged := filepath.Join(at, stagedDir(c))
	if _, err := os.Stat(filepath.Join(staged, readyFile)); err != nil {
		t.Error(err)
	}
	if got := content(t, c, filepath.Join(beforeDir(c), "0")) + content(t, c, filepath.Join(beforeDir(c), "1")); got != "1\ngone\n" {
		t.Errorf("before: %q", got)
	}
	var m transaction
	ok(t, json.Unmarshal([]byte(content(t, c, filepath.Join(beforeDir(c), manifestFile))), &m))
	if e := m.Files[0]; len(m.Files) != 3 || e.Path != "one" || e.Before != digest([]byte("1\n")) || e.After != digest([]byte("one\nmore\n")) || e.Mode != 0o640 {
		t.Errorf("%+v", m)
	}
	w.Finished(c)
	if _, err := os.Stat(staged); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the call is finished: %v", err)
	}

	// A later change removes what is old, and not what is kept of this one.
	stale := filepath.Join(at, outputDir, ".tx-0123456789abcdef")
	week := time.Now().Add(-7 * 24 * time.Hour)
	ok(t, errors.Join(os.Mkdir(stale, 0o700), os.Chtimes(stale, week, week)))
	next := callOf(at, "m2:tool:1:1", nameWrite, []byte(`{"path":"f","content":"x"}`))
	if r := writerOf(t, nameWrite).Run(t.Context(), next); r.IsError {
		t.Fatal(r.Text)
	}
	for name, want := range map[string]bool{stale: false, filepath.Join(at, beforeDir(c)): true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
	w.Finished(callOf("", "k", namePatch, nil)) // without a directory there is nothing to do
}

// Where nothing can be staged, no file is changed and the model reads why.
func TestNothingCanBeStaged(t *testing.T) {
	c, _ := three(t)
	at := c.Place.Config.GetWorkdir()
	ok(t, os.WriteFile(filepath.Join(at, outputDir), []byte("in the way"), 0o600))
	r := writerOf(t, namePatch).Run(t.Context(), c)
	if !r.IsError || !strings.Contains(r.Text, "no file was changed") {
		t.Errorf("%+v", r)
	}
	if got := content(t, c, "one"); got != "1\n" {
		t.Errorf("one is %q", got)
	}
}

// What a program writes in the place of a transaction leads nowhere outside, and the call
// starts again.
func TestForgedTransaction(t *testing.T) {
	for name, forge := range map[string]func(*transaction) []byte{
		"no JSON":      func(*transaction) []byte { return []byte("{") },
		"another call": func(tx *transaction) []byte { tx.Call = "x"; return encoded(t, tx) },
		"a path outside": func(tx *transaction) []byte {
			tx.Files[0].Path = "../outside"
			return encoded(t, tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, want := three(t)
			begin(t, c, func(tx *transaction) {
				ok(t, tx.commit())
				at := filepath.Join(c.Place.Config.GetWorkdir(), stagedDir(c), readyFile)
				ok(t, os.WriteFile(at, forge(tx), 0o600))
			})
			if r := writerOf(t, namePatch).Run(t.Context(), c); r.IsError || content(t, c, "one") != want["one"] {
				t.Errorf("%+v", r)
			}
		})
	}
	c, _ := three(t) // the new content is not what was staged
	begin(t, c, func(tx *transaction) {
		ok(t, errors.Join(tx.commit(), os.WriteFile(filepath.Join(c.Place.Config.GetWorkdir(), stagedDir(c), "0"), []byte("forged"), 0o600)))
	})
	if r := writerOf(t, namePatch).Run(t.Context(), c); !r.IsError || !strings.Contains(r.Text, "one cannot be changed") || content(t, c, "one") != "1\n" {
		t.Errorf("%+v", r)
	}
	out := t.TempDir() // .output is a link to somewhere else
	c, _ = three(t)
	ok(t, os.Symlink(out, filepath.Join(c.Place.Config.GetWorkdir(), outputDir)))
	if r := writerOf(t, namePatch).Run(t.Context(), c); !r.IsError || !strings.Contains(r.Text, "no file was changed") || content(t, c, "one") != "1\n" {
		t.Errorf("%+v", r)
	}
	if names, err := os.ReadDir(out); err != nil || len(names) > 0 {
		t.Errorf("outside: %v %v", names, err)
	}
}

func encoded(t *testing.T, tx *transaction) []byte {
	t.Helper()
	b, err := json.Marshal(tx)
	ok(t, err)
	return b
}

// When a file cannot be placed, the result says how many are changed, and the same call can
// finish the rest.
func TestFailureBetweenFiles(t *testing.T) {
	c, _ := three(t)
	at := c.Place.Config.GetWorkdir()
	begin(t, c, func(tx *transaction) { ok(t, tx.commit()) })
	ok(t, os.Symlink("nowhere", filepath.Join(at, "new"))) // where the third file needs a directory
	r := writerOf(t, namePatch).Run(t.Context(), c)
	if !r.IsError || !strings.Contains(r.Text, "2 of 3 files are changed") || content(t, c, "one") != "one\nmore\n" {
		t.Errorf("%+v", r)
	}
	ok(t, os.Remove(filepath.Join(at, "new")))
	if r := writerOf(t, namePatch).Run(t.Context(), c); r.IsError || content(t, c, "new/dir/three") != "3\n" {
		t.Errorf("after the cause is gone: %+v", r)
	}
}

// Calls of several turns in one directory do not lose changes of each other.
func TestAtOnce(t *testing.T) {
	at := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(at, "f"), []byte("x\n"), 0o600))
	w := writerOf(t, nameEdit)
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			c := callOf(at, fmt.Sprintf("m%d:tool:1:1", n), nameEdit, fmt.Appendf(nil, `{"path":"f","old_text":"x\n","new_text":"x\n%d\n"}`, n))
			if r := w.Run(context.WithoutCancel(t.Context()), c); r.IsError {
				t.Error(r.Text)
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(filepath.Join(at, "f"))
	if err != nil || bytes.Count(b, []byte("\n")) != 17 {
		t.Errorf("%q %v", b, err)
	}
}

// The digests of one turn are bounded.
func TestSeenIsBounded(t *testing.T) {
	var s seen
	c := callOf("/w", "m1:tool:1:1", nameRead, nil)
	for n := range 10 * maxSeen {
		s.add(c, fmt.Sprint(n), "d")
	}
	for n := range 2 * maxTurns {
		s.add(callOf("/w", fmt.Sprintf("n%d:tool:1:1", n), nameRead, nil), "f", "d")
	}
	if len(s.turns) != maxTurns || len(s.order) != maxTurns {
		t.Errorf("%d turns, %d in order", len(s.turns), len(s.order))
	}
	s.add(c, "f", "d")
	for n := range 10 * maxSeen {
		s.add(c, fmt.Sprint(n), "d")
		if got := len(s.turns[seenBy(c)]); got > maxSeen {
			t.Fatalf("%d files", got)
		}
	}
	if turn(c) != "m1" || turn(toolset.Call{Key: "m1"}) != "m1" || turn(toolset.Call{Key: "a:tool:b:tool:3:4"}) != "a:tool:b" {
		t.Error("the turn of a key")
	}
}

// What is decoded and encoded again is the same, in every encoding.
func FuzzEncoding(f *testing.F) {
	for _, s := range []string{"", "a\r\n", "\xef\xbb\xbfx", "\xff\xfea\x00", "\xfe\xff\xd8\x3d\xde\x00", "\xff\xfe\x3d\xd8", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e := encodingOf(b)
		text, c := e.decode(b)
		if again := e.encode(text); c.Replaced == 0 && !bytes.Equal(again, b) {
			t.Errorf("%q, as %q, is %q", b, text, again)
		}
	})
}

// No patch makes the parser fail.
func FuzzPatch(f *testing.F) {
	f.Add("*** Begin Patch\n*** Update File: f\n@@ a\n x\n\n-y\n+z\n*** End of File\n*** End Patch", "a\nx\n\ny")
	f.Add("*** Begin Patch\n*** Add File: f\n+\n\n*** Delete File: g\n*** End Patch", "")
	f.Fuzz(func(t *testing.T, patch, text string) {
		sections, err := parsePatch(patch)
		if err != nil {
			return
		}
		p := planned{paths: map[string]bool{}}
		for _, s := range sections {
			if out, err := p.hunks(t.Context(), s, text); err == nil && len(s.hunks) == 0 && out != text {
				t.Errorf("without hunks %q became %q", text, out)
			}
		}
	})
}
