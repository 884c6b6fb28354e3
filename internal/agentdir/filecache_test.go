package agentdir

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// readOne is a file as ReadEach finds it; nil: it did not.
func readOne(t *testing.T, d Dir, name string) []byte {
	t.Helper()
	var out []byte
	d.ReadEach([]string{name}, func(_ string, data []byte, err error) {
		if err != nil {
			t.Error(err)
		}
		out = data
	})
	return out
}

// age gives a file a time of modification that no second write can share. The time of change
// cannot be set, so the file system is waited for.
func age(t *testing.T, path string) {
	t.Helper()
	if err := os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		if _, settled, err := stampOf(path); err != nil || time.Now().After(end) {
			t.Fatalf("%s is not settled: %v", path, err)
		} else if settled {
			return
		}
	}
}

// A file that is as it was is not read again; every other way to change one is seen.
func TestReadEachSeesChanges(t *testing.T) {
	d := create(t, openHome(t), "a1")
	const name = "memory/agent.md"
	path := filepath.Join(d.Path, name)
	put := func(text string) {
		if _, err := d.WriteFile(name, []byte(text), ""); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	age(t, path)
	first, second := readOne(t, d, name), readOne(t, d, name)
	if string(first) != "one" || unsafe.SliceData(first) != unsafe.SliceData(second) {
		t.Errorf("%q and %q, of two readings", first, second)
	}
	stat, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(){
		"written by name": func() { put("two") },
		"written in place, with the size and the time it had": func() {
			if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, stat.ModTime(), stat.ModTime()); err != nil {
				t.Fatal(err)
			}
		},
		"replaced by another file": func() {
			write(t, path+".new", "two")
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		put("one")
		age(t, path)
		readOne(t, d, name)
		change()
		if got := readOne(t, d, name); string(got) != "two" {
			t.Errorf("%s: %q", what, got)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := readOne(t, d, name); got != nil {
		t.Errorf("removed: %q", got)
	}
}

// Whatever is written and however soon it is read, the last content is found.
func TestReadEachIsNeverLate(t *testing.T) {
	d := create(t, openHome(t), "a1")
	r := rand.New(rand.NewPCG(1, 2))
	last := map[string]string{}
	for i := range 2000 {
		name := fmt.Sprintf("memory/f%d.md", r.IntN(3))
		if r.IntN(3) == 0 {
			last[name] = fmt.Sprintf("%06d", i)
			if r.IntN(2) == 0 {
				if _, err := d.WriteFile(name, []byte(last[name]), ""); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(filepath.Join(d.Path, name), []byte(last[name]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(readOne(t, d, name)); got != last[name] {
			t.Fatalf("step %d: %s is %q, want %q", i, name, got, last[name])
		}
	}
}

// The content that is kept is bounded.
func TestCacheIsBounded(t *testing.T) {
	var c fileCache
	text := []byte(strings.Repeat("x", cacheBytes/20))
	for i := range 1000 {
		c.put(fmt.Sprint("f", i%100), fileStamp{inode: uint64(i)}, text)
		if got, ok := c.get(fmt.Sprint("f", i%100), fileStamp{inode: uint64(i)}); !ok || len(got) != len(text) {
			t.Fatalf("file %d is not kept", i)
		}
		sum := 0
		for _, f := range c.files {
			sum += len(f.data)
		}
		if sum > c.bytes || c.bytes > cacheBytes {
			t.Fatalf("after %d files: %d bytes are kept, %d are counted", i, sum, c.bytes)
		}
	}
	c.put("large", fileStamp{}, make([]byte, cacheBytes/16))
	if _, ok := c.get("large", fileStamp{}); ok {
		t.Error("a large file is kept")
	}
}
