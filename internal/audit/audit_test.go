package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/audit"
	"github.com/theclaw/agents/internal/fault"
)

const first = "000001.jsonl"

// written makes a log of n entries beside the first one and closes it.
func written(t *testing.T, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir)
	for i := range n {
		if err := l.Append(audit.Entry{Actor: "owner", Action: "StartAgent", Agent: fmt.Sprint("a", i), Outcome: "allowed"}, i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, dir string) *audit.Log {
	t.Helper()
	l, err := audit.Open(dir, func(s string) string { return strings.ReplaceAll(s, "sk-secret", "[redacted]") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// S6: every single byte of the log and of head: changed, it is found, and the entry
// that is named is the one it is in.
func TestEveryChangedByteIsFound(t *testing.T) {
	dir := written(t, 4)
	whole := read(t, dir, first)
	if r, err := audit.Verify(dir, ""); err != nil || r.Entries != 5 {
		t.Fatalf("untouched: %+v, %v", r, err)
	}
	for i := range whole {
		changed := slices.Clone(whole)
		changed[i] ^= 1
		put(t, dir, first, changed)
		_, err := audit.Verify(dir, "")
		want := fmt.Sprintf("entry %d ", 1+bytes.Count(whole[:i], []byte{'\n'}))
		if !fault.Is(err, fault.AuditBroken) || !strings.Contains(err.Error(), want) {
			if whole[i] == '\n' && i == len(whole)-1 && fault.Is(err, fault.AuditBroken) {
				continue // the last line has no end: entry 5 is gone
			}
			t.Fatalf("byte %d of %q: %v, want %q", i, whole[max(0, i-20):min(len(whole), i+20)], err, want)
		}
	}
	put(t, dir, first, whole)
	head := read(t, dir, "head")
	for i := range head {
		changed := slices.Clone(head)
		changed[i] ^= 1
		put(t, dir, "head", changed)
		if _, err := audit.Verify(dir, ""); !fault.Is(err, fault.AuditBroken) {
			t.Fatalf("byte %d of head: %v", i, err)
		}
	}
}

// S6: what was removed, moved, put in or cut off is found, also by the next start.
func TestMovedAndRemovedEntriesAreFound(t *testing.T) {
	dir := written(t, 5)
	whole := read(t, dir, first)
	lines := bytes.SplitAfter(bytes.TrimSuffix(whole, nil), []byte{'\n'})
	lines = lines[:len(lines)-1]
	join := func(order ...int) []byte {
		var b []byte
		for _, i := range order {
			b = append(b, lines[i]...)
		}
		return b
	}
	for name, c := range map[string]struct {
		log  []byte
		want string
	}{
		"one removed":     {join(0, 1, 3, 4, 5), "entry 3 "},
		"two exchanged":   {join(0, 1, 3, 2, 4, 5), "entry 3 "},
		"one twice":       {join(0, 1, 1, 2, 3, 4, 5), "entry 3 "},
		"the first gone":  {join(1, 2, 3, 4, 5), "entry 1 "},
		"the last gone":   {join(0, 1, 2, 3, 4), "entry 6"},
		"an empty line":   {append(join(0), append([]byte{'\n'}, join(1, 2, 3, 4, 5)...)...), "entry 2 "},
		"everything gone": {nil, "entry 1"},
	} {
		put(t, dir, first, c.log)
		if _, err := audit.Verify(dir, ""); !fault.Is(err, fault.AuditBroken) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	put(t, dir, first, join(0, 1, 2, 3))
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(dir, ""); err == nil || !strings.Contains(err.Error(), "entry 5 ") || !strings.Contains(err.Error(), "not there any more") {
		t.Errorf("cut off, then started: %v", err)
	}
	put(t, dir, first, whole)
	put(t, dir, "head", nil)
	if _, err := audit.Verify(dir, ""); !fault.Is(err, fault.AuditBroken) {
		t.Errorf("without head: %v", err)
	}
	other := written(t, 5)
	r, err := audit.Verify(other, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(other, r.Head); err != nil {
		t.Errorf("the hash that was noted: %v", err)
	}
	if _, err := audit.Verify(other, strings.Repeat("0", 64)); !fault.Is(err, fault.AuditBroken) {
		t.Errorf("written anew: %v", err)
	}
}

// A process that was killed in the middle of a line leaves half of it, which
// nobody was told is there; the next start goes on, and the chain is whole.
func TestHalfALineIsCutOff(t *testing.T) {
	dir := written(t, 3)
	whole := read(t, dir, first)
	for _, half := range []string{"{", `{"seq":5,"at":"2026-`, strings.TrimSuffix(string(whole[bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1:]), "\n")} {
		put(t, dir, first, append(slices.Clone(whole), half...))
		if r, err := audit.Verify(dir, ""); err != nil || r.Entries != 4 {
			t.Errorf("with %q behind it: %+v, %v", half, r, err)
		}
	}
	l := open(t, dir)
	if err := l.Append(audit.Entry{Actor: "owner", Action: "SetAgentConfig", Outcome: "allowed", Detail: "key: sk-secret " + strings.Repeat("é", 1000)}, true); err != nil {
		t.Fatal(err)
	}
	if r, err := audit.Verify(dir, ""); err != nil || r.Entries != 5 {
		t.Errorf("after going on: %+v, %v", r, err)
	}
	var last audit.Entry
	if err := audit.Read(dir, func(e audit.Entry) error { last = e; return nil }); err != nil {
		t.Fatal(err)
	}
	if last.Seq != 5 || !strings.HasPrefix(last.Detail, "key: [redacted] é") || len(last.Detail) > 510 {
		t.Errorf("the entry: %+v", last)
	}
	for _, name := range []string{first, "head"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, fi.Mode(), err)
		}
	}
}

// Many who wait for the disk at once share the waiting, and each entry is there when
// its Append returns.
func TestKeptTogether(t *testing.T) {
	dir := t.TempDir()
	l, err := audit.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if err := l.Append(audit.Entry{Action: fmt.Sprint("a", i), Outcome: "allowed"}, true); err != nil {
				t.Error(err)
			}
			head, err := os.ReadFile(filepath.Join(dir, "head"))
			if err != nil || len(head) == 0 {
				t.Errorf("no head: %v", err)
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := audit.Verify(dir, "")
	if err != nil || r.Entries != 201 {
		t.Errorf("%+v, %v", r, err)
	}
}
