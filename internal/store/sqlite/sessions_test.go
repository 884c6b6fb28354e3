package sqlite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// formatOf is the format of a thread's database.
func formatOf(t *testing.T, e *Engine, r store.Ref) int {
	t.Helper()
	n, err := view(t.Context(), e, r, func(tx *db.Tx) (n int, err error) {
		_, err = tx.Row("SELECT format FROM x_meta", nil, &n)
		return n, err
	})
	must(t, err)
	return n
}

// A database without origins and sessions, as an earlier build made it, is read without a
// write, works on in its format, and gets the new one with the first row that needs it.
func TestOlderDatabase(t *testing.T) {
	root := home(t, "a")
	e := New(Options{Path: layout(root), Live: anyLease})
	in, th := store.Inbox("a"), store.Ref{Agent: "a", Thread: "threads/x"}
	run := store.Fence{Resource: "agent/a", Token: 1}
	open := store.OpenBatch{Limit: 9, Mode: "m", Route: func(thread.Event, string) (string, error) { return th.Thread, nil }}
	message := func(text string) store.NewEvent {
		return store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: text}
	}
	answer := func(text string, s *store.BeginSession, o *store.Origin) store.Pending {
		t.Helper()
		n := message(text)
		n.Origin = o
		_, err := e.Append(t.Context(), in, []store.NewEvent{n}, store.AppendOptions{Key: text})
		must(t, err)
		b, err := e.OpenBatch(t.Context(), "a", run, open)
		must(t, err)
		_, err = e.Ensure(t.Context(), th, "")
		must(t, err)
		p := b.Events[0]
		begun, err := e.Begin(t.Context(), th, run, store.Begin{Event: p.Event, Key: p.Key, Session: s})
		must(t, err)
		_, err = e.Finish(t.Context(), th, run, store.Finish{Key: p.Key, Fate: store.FateSilent})
		must(t, err)
		_, err = e.Settle(t.Context(), "a", run, store.Settlement{InboxID: p.Event.ID, Key: p.Key, Thread: th.Thread, Fate: store.FateSilent, Session: begun.Session})
		must(t, err)
		return p
	}
	answer("1", nil, nil)
	must(t, e.Close())

	files := []string{filepath.Join(root, "a", "inbox", "events.db"), filepath.Join(root, "a", "threads", "x", "events.db")}
	content := func() (out [][]byte) {
		t.Helper()
		for _, f := range files {
			b, err := os.ReadFile(f)
			must(t, err)
			out = append(out, b)
		}
		return out
	}
	before := content()
	e = New(Options{Path: layout(root), Live: anyLease})
	o, err := e.Origin(t.Context(), "a", 1)
	if err != nil || o != nil {
		t.Errorf("origin %+v, %v", o, err)
	}
	if _, err := e.Session(t.Context(), th); !errors.Is(err, store.ErrNoSession) {
		t.Errorf("session: %v", err)
	}
	if list, err := e.ListSessions(t.Context(), "a", store.ListSessions{Limit: 9, Archived: true}); err != nil || len(list) != 0 {
		t.Errorf("sessions %+v, %v", list, err)
	}
	if p, found, err := e.Pushed(t.Context(), in, "1"); err != nil || !found || p.IDs[0] != 1 || p.Origins[0] != nil {
		t.Errorf("pushed %+v, %v, %v", p, found, err)
	}
	if turn, err := e.Turn(t.Context(), "a", store.TurnQuery{InboxID: 1}); err != nil || turn.Fate != store.FateSilent || turn.Origin != nil {
		t.Errorf("turn %+v, %v", turn, err)
	}
	if list, err := e.ListTurns(t.Context(), "a", store.ListTurns{Limit: 9}); err != nil || len(list) != 1 {
		t.Errorf("turns %+v, %v", list, err)
	}
	must(t, e.Close())
	for i, b := range content() {
		if !bytes.Equal(b, before[i]) {
			t.Errorf("%s was written", files[i])
		}
	}

	e = engine(t, root)
	answer("2", nil, nil)
	for _, r := range []store.Ref{in, th} {
		if n := formatOf(t, e, r); n != 1 {
			t.Errorf("%s has format %d", r, n)
		}
	}
	p := answer("3", &store.BeginSession{Key: "agent:a:main"}, &store.Origin{Thread: th.Thread, Key: "agent:a:main", SentAt: time.UnixMilli(1)})
	for _, r := range []store.Ref{in, th} {
		if n := formatOf(t, e, r); n != 3 {
			t.Errorf("%s has format %d", r, n)
		}
	}
	if p.Origin == nil || p.Thread != th.Thread {
		t.Errorf("pending %+v", p)
	}

	// Another program goes on writing to the inbox: its events follow the routing mode.
	g, err := OpenGuest(t.Context(), filepath.Dir(files[0]))
	must(t, err)
	_, err = g.Append(t.Context(), []store.NewEvent{message("foreign")})
	must(t, errors.Join(err, g.Close()))
	b, err := e.OpenBatch(t.Context(), "a", run, open)
	if err != nil || len(b.Events) != 1 || b.Events[0].Origin != nil {
		t.Errorf("batch %+v, %v", b, err)
	}
	if n, err := e.VerifyChain(t.Context(), in); n != 4 || err != nil {
		t.Errorf("chain of %d: %v", n, err)
	}
}
