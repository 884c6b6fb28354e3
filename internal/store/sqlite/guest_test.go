package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

func guest(t *testing.T, dir string) *Guest {
	t.Helper()
	g, err := OpenGuest(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func message(content string) []store.NewEvent {
	return []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: content}}
}

// dump is everything that was said about tables in a database.
func dump(t *testing.T, dir string) string {
	t.Helper()
	s, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all string
	if err := s.QueryRow("SELECT group_concat(name || ': ' || COALESCE(sql,''), char(10)) FROM (SELECT * FROM sqlite_schema ORDER BY rowid)").Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// A guest leaves no trace in an inbox of another agent: who takes it over later
// begins where that agent was then, not where it was when the guest looked.
func TestGuestTakesNothingOver(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "inbox")
	if err := os.CopyFS(dir, os.DirFS("db/testdata/golden")); err != nil {
		t.Fatal(err)
	}
	before := dump(t, dir)
	g := guest(t, dir)
	ids, err := g.Append(t.Context(), message("from a guest"))
	if err != nil || len(ids) != 1 || ids[0] != 8 {
		t.Fatalf("ids %v, %v", ids, err)
	}
	if err := errors.Join(g.Ack(t.Context(), thread.Inbox, 5), g.Close()); err != nil {
		t.Fatal(err)
	}
	if after := dump(t, dir); after != before || strings.Contains(after, "\nx_") {
		t.Errorf("the guest left tables behind:\n%s", after)
	}
	e := engine(t, root)
	if s, err := e.State(t.Context(), "a"); err != nil || s.Acked != 5 || s.Head != 8 || s.Pending != 3 {
		t.Errorf("state %+v, %v", s, err)
	}
	if _, err := e.Append(t.Context(), store.Inbox("a"), message("from the owner"), store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if n, err := e.VerifyChain(t.Context(), store.Inbox("a")); err != nil || n != 9 {
		t.Errorf("chain of %d: %v", n, err)
	}
}

// Guests, the owner and a foreign program write at once: nobody sees an error,
// nothing is lost, and the owner's chain has all of it.
func TestGuestsBesideTheOwner(t *testing.T) {
	root := home(t, "a")
	e, dir := engine(t, root), filepath.Join(root, "a", "inbox")
	const each = 40
	var wg sync.WaitGroup
	run := func(fn func() error) {
		wg.Go(func() {
			for range each {
				if err := fn(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		g := guest(t, dir)
		defer func() { _ = g.Close() }()
		run(func() error { _, err := g.Append(t.Context(), message("guest")); return err })
	}
	f, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "events.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	run(func() error {
		_, err := f.ExecContext(t.Context(), "INSERT INTO events(source, type, content) VALUES('s','message','foreign')")
		return err
	})
	run(func() error {
		_, err := e.Append(t.Context(), store.Inbox("a"), message("owner"), store.AppendOptions{})
		return err
	})
	wg.Wait()
	if _, err := e.Append(t.Context(), store.Inbox("a"), message("last"), store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if n, err := e.VerifyChain(t.Context(), store.Inbox("a")); err != nil || n != 4*each+1 {
		t.Errorf("chain of %d: %v", n, err)
	}
}

// Guests that take turns write each line of events.jsonl once, in order.
func TestGuestsShareTheMirror(t *testing.T) {
	dir := t.TempDir()
	if _, err := db.Create(dir); err != nil {
		t.Fatal(err)
	}
	const guests, each = 4, 15
	var wg sync.WaitGroup
	for range guests {
		wg.Go(func() {
			for range each { // a process each, as it were
				g, err := OpenGuest(t.Context(), dir)
				if err == nil {
					_, err = g.Append(t.Context(), message("x"))
					err = errors.Join(err, g.Close())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	g := guest(t, dir)
	defer g.Close()
	p, err := g.Read(t.Context(), store.Query{Limit: 1000})
	if err != nil || len(p.Events) != guests*each {
		t.Fatalf("%d events, %v", len(p.Events), err)
	}
	var want []byte
	for _, ev := range p.Events {
		want = append(ev.AppendLine(want), '\n')
	}
	got, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil || string(got) != string(want) {
		t.Errorf("%d lines for %d events, %v", strings.Count(string(got), "\n"), len(p.Events), err)
	}
}

func TestGuestErrors(t *testing.T) {
	if _, err := OpenGuest(t.Context(), t.TempDir()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no thread: %v", err)
	}
	dir := t.TempDir()
	if _, err := db.Create(dir); err != nil {
		t.Fatal(err)
	}
	g := guest(t, dir)
	defer g.Close()
	s := store.Subscription{Consumer: "c", Handler: "true"}
	if err := g.Ack(t.Context(), "c", 1); !errors.Is(err, store.ErrNoConsumer) {
		t.Errorf("ack: %v", err)
	}
	if err := g.Subscribe(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := g.Subscribe(t.Context(), s); !errors.Is(err, store.ErrConsumerExists) {
		t.Errorf("again: %v", err)
	}
	if err := errors.Join(g.Ack(t.Context(), "c", 7), g.Unsubscribe(t.Context(), "c"), g.Subscribe(t.Context(), s)); err != nil {
		t.Fatal(err)
	}
	in, err := g.Info(t.Context())
	if err != nil || len(in.Subscriptions) != 1 || in.Subscriptions[0].Acked != 7 {
		t.Errorf("progress outlives the subscription: %+v, %v", in, err)
	}
}
