package mirror

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/thread"
)

// log is the database: the events from 1 to its length.
type log []thread.Event

func (l *log) add(n int) []thread.Event {
	from := len(*l)
	for range n {
		*l = append(*l, thread.Event{ID: int64(len(*l) + 1), CreatedAt: "t", Source: "s", Type: "message", Content: "x"})
	}
	return (*l)[from:]
}

func (l *log) missing(after, before int64, fn func(thread.Event) error) error {
	for _, e := range *l {
		if e.ID > after && e.ID < before {
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *log) text(from, to int) string {
	var b []byte
	for _, e := range (*l)[from:to] {
		b = append(e.AppendLine(b), '\n')
	}
	return string(b)
}

func setup(t *testing.T) (*Mirror, *log, string) {
	t.Helper()
	l, dir := &log{}, t.TempDir()
	m := New(dir, l.missing)
	t.Cleanup(func() { _ = m.Close() })
	return m, l, filepath.Join(dir, "events.jsonl")
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %d bytes %.300q\nwant %d bytes %.300q", what, len(got), got, len(want), want)
	}
}

func foreign(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestLines(t *testing.T) {
	m, l, path := setup(t)
	m.Append(l.add(2))
	m.Append(l.add(1))
	equal(t, "file", content(t, path), l.text(0, 3))
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
}

// What a crash left out comes with the next append; half a line stays.
func TestCatchUp(t *testing.T) {
	m, l, path := setup(t)
	m.Append(l.add(2))
	_ = m.Close()
	l.add(3)
	foreign(t, path, `{"id":3,"cre`)
	m.Append(l.add(1))
	equal(t, "file", content(t, path), l.text(0, 2)+"{\"id\":3,\"cre\n"+l.text(2, 6))
	// A line longer than the read buffer has its id, too.
	_ = m.Close()
	long := l.add(1)
	long[0].Content = strings.Repeat("y", 200<<10)
	m.Append(long)
	_ = m.Close()
	m.Append(l.add(1))
	equal(t, "end", content(t, path)[len(l.text(0, 2))+len("{\"id\":3,\"cre\n"):], l.text(2, 8))
}

// S0-65: the file is rotated at 10,000 lines and nothing is lost.
func TestRotation(t *testing.T) {
	m, l, path := setup(t)
	for range 10 {
		m.Append(l.add(1000))
	}
	equal(t, "full", content(t, path), l.text(0, 10000))
	m.Append(l.add(1))
	equal(t, "new", content(t, path), l.text(10000, 10001))
	old := func() []string { o, _ := filepath.Glob(filepath.Join(m.dir, "events-*.jsonl")); return o }
	if len(old()) != 1 {
		t.Fatalf("rotated: %v", old())
	}
	equal(t, "rotated", content(t, old()[0]), l.text(0, 10000))
	// Again within the same second: under another name.
	for range 10 {
		m.Append(l.add(1000))
	}
	if m.Append(l.add(1)); len(old()) != 2 {
		t.Errorf("rotated twice: %v", old())
	}
	// A file that is empty because of the rotation does not get the old lines.
	_ = m.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	m.Append(l.add(1))
	equal(t, "after a restart", content(t, path), l.text(len(*l)-1, len(*l)))
}

// Another program appends to the file, and rotates it under us.
func TestForeignLines(t *testing.T) {
	m, l, path := setup(t)
	m.Append(l.add(1))
	l.add(1)
	foreign(t, path, l.text(1, 2))
	m.Append(l.add(1))
	equal(t, "file", content(t, path), l.text(0, 3))
	l.add(maxLines - 3)
	foreign(t, path, l.text(3, maxLines))
	m.Append(l.add(1))
	equal(t, "counted", content(t, path), l.text(maxLines, maxLines+1))
	if err := os.Rename(path, filepath.Join(m.dir, "events-20260101-000000.jsonl")); err != nil {
		t.Fatal(err)
	}
	l.add(1)
	foreign(t, path, l.text(maxLines+1, maxLines+2))
	m.Append(l.add(1))
	equal(t, "rotated by another", content(t, path), l.text(maxLines+1, maxLines+3))
}

// An error drops lines; the next append brings them.
func TestErrorIsRepaired(t *testing.T) {
	m, l, path := setup(t)
	m.Append(l.add(1))
	_ = m.f.Close() // every write fails now
	m.Append(l.add(1))
	m.Append(l.add(1))
	equal(t, "file", content(t, path), l.text(0, 3))
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	m.Append(l.add(1))
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.Append(l.add(1))
	equal(t, "whole again", content(t, path), l.text(0, 5))
}

func TestLast(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for text, want := range map[string]int64{
		"": 0, "{\"id\":7,\"a\":1}\n": 7, "{\"id\":7,": 0, "{\"id\":7,\"a\":1}\n{\"id\":8,\"a": 7, "torn\n": 0,
		"{\"id\":1,\"a\":1}\n{\"id\":2,\"a\":1}\n": 2, "{\"id\":1,\"a\":1}\n{\"id\":2,\"a\":\"" + long + "\"}\n": 2,
		"{\"id\":2,\"a\":\"" + long + "\"}\n{\"id\":3,\"a\":\"" + long: 2,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Last(dir); got != want {
			t.Errorf("%.40q: %d, want %d", text, got, want)
		}
	}
	if got := Last(t.TempDir()); got != 0 {
		t.Error(got)
	}
}
