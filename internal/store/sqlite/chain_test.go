package sqlite

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// RELIABILITY section 2: an event that another program wrote is in the chain as
// soon as it is read for a decision, without an append of ours; changed after that
// it is found at the next open.
func TestForeignEventsAreChainedWhenRead(t *testing.T) {
	root := home(t, "a")
	e := engine(t, root)
	inbox := store.Inbox("a")
	if _, err := e.State(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	foreign := func(query string) {
		t.Helper()
		d, err := sql.Open("sqlite", filepath.Join(root, "a", "inbox", "events.db")+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		foreign("INSERT INTO events(source, type, content) VALUES('external:telegram:main:dm:eve:eve','message','{\"text\":\"hi\"}')")
	}
	if n, err := e.VerifyChain(t.Context(), inbox); n != 0 || err != nil {
		t.Fatalf("before: chain of %d, %v", n, err)
	}
	b, err := e.OpenBatch(t.Context(), "a", store.Fence{Resource: "agent/a", Token: 1}, store.OpenBatch{
		Limit: 9, Mode: "m", Route: func(thread.Event, string) (string, error) { return "threads/x", nil },
	})
	if err != nil || len(b.Events) != 3 {
		t.Fatalf("batch %+v, %v", b, err)
	}
	if n, err := e.VerifyChain(t.Context(), inbox); n != 3 || err != nil {
		t.Errorf("after: chain of %d, %v", n, err)
	}
	e.Forget(func(r store.Ref) bool { return r == inbox })
	foreign("UPDATE events SET content = '{\"text\":\"ho\"}' WHERE id = 2")
	if _, err := e.State(t.Context(), "a"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("opened with a changed event in the tail: %v", err)
	}
}
