package thread_test

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/thread"
)

type line struct {
	ID        int64   `json:"id"`
	CreatedAt string  `json:"created_at"`
	Source    string  `json:"source"`
	Type      string  `json:"type"`
	Subtype   *string `json:"subtype"`
	Content   string  `json:"content"`
}

func event(l line) thread.Event {
	return thread.Event{ID: l.ID, CreatedAt: l.CreatedAt, Source: l.Source, Type: l.Type, Subtype: l.Subtype, Content: l.Content}
}

// The recorded lines of the external tool come back byte for byte (S0-54).
func TestLineEqualsRecordedBytes(t *testing.T) {
	f, err := os.Open("testdata/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc, n := bufio.NewScanner(f), 0
	for sc.Scan() {
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if got := string(event(l).AppendLine(nil)); got != sc.Text() {
			t.Errorf("line %d:\n got %s\nwant %s", n+1, got, sc.Text())
		}
		n++
	}
	if n != 7 {
		t.Fatalf("read %d lines, want 7", n)
	}
}

func TestLineRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := line{
			ID: rapid.Int64Range(1, 1<<53).Draw(t, "id"), Source: rapid.String().Draw(t, "source"),
			Type: rapid.String().Draw(t, "type"), Content: rapid.String().Draw(t, "content"),
		}
		if rapid.Bool().Draw(t, "has subtype") {
			s := rapid.String().Draw(t, "subtype")
			want.Subtype = &s
		}
		var got line
		if err := json.Unmarshal(event(want).AppendLine(nil), &got); err != nil {
			t.Fatal(err)
		}
		if event(got).Hash(nil) != event(want).Hash(nil) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// Two different rows never share a hash input, NULL and empty included.
func TestHashTellsRowsApart(t *testing.T) {
	empty := ""
	a := thread.Event{ID: 1, Source: "ab", Type: "c"}
	rows := []thread.Event{a, {ID: 1, Source: "a", Type: "bc"}, {ID: 2, Source: "ab", Type: "c"}, {ID: 1, Source: "ab", Type: "c", Subtype: &empty}}
	seen := map[[32]byte]int{}
	for i, r := range rows {
		if j, dup := seen[r.Hash(nil)]; dup {
			t.Errorf("rows %d and %d share a hash", i, j)
		}
		seen[r.Hash(nil)] = i
	}
	if a.Hash(nil) == a.Hash([]byte{0}) {
		t.Error("the previous hash does not count")
	}
}

func TestKeyCarriesID(t *testing.T) {
	e := thread.Event{ID: 42, Source: "self", Type: "message", Content: "x"}
	if id, ok := thread.KeyID(e.Key("u")); !ok || id != 42 {
		t.Fatalf("KeyID = %d, %v", id, ok)
	}
	for _, bad := range []string{"", "u:42", "u:x:ff", "u:-1:ff", "a:b:c:d"} {
		if _, ok := thread.KeyID(bad); ok {
			t.Errorf("KeyID(%q) accepted", bad)
		}
	}
	if e.DeliveryKey("u") == e.DeliveryKey("v") {
		t.Error("delivery keys of two threads are equal")
	}
}
