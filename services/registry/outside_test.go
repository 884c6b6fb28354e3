package registry_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/handlerlock"
	"github.com/theclaw/agents/internal/notifier"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// foreign changes a database as another program does.
func foreign(t *testing.T, dir, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "events.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(end) {
			t.Fatalf("%s never happens", what)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func tasks(t *testing.T, home string) []string {
	t.Helper()
	entries, _ := os.ReadDir(filepath.Join(home, "tasks", "pending")) // absent: none
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".txt") {
			out = append(out, e.Name())
		}
	}
	return out
}

// CONTRACTS 1.5, DESIGN 5.2: who subscribed to a thread from outside hears of our
// commits as of the external tool's; a filter that does not work stops nobody.
func TestForeignSubscription(t *testing.T) {
	told := t.TempDir()
	w := newWorld(t, filepath.Join(t.TempDir(), "home"), registry.Config{Sweep: 50 * time.Millisecond}, func(d *setup) {
		d.Notifier = func() (string, bool) { return told, true }
	})
	w.create("plain")
	w.create("heard")
	inbox := filepath.Join(w.home, "agents", "heard", "inbox")
	const subscribe = "INSERT INTO subscriptions(consumer_id, handler_cmd, filter) VALUES(?,?,?)"
	foreign(t, inbox, subscribe, "broken", "true", "type=message AND source=self")
	foreign(t, inbox, subscribe, "audit", "audit 'x'", nil)

	w.push("plain", "ann", "x", "")
	w.push("heard", "ann", "x", "")
	name := "external:telegram:main:dm:ann:ann-" + notifier.TaskID(inbox) + ".txt"
	await(t, "a task", func() bool { return len(tasks(t, told)) > 0 })
	b, err := os.ReadFile(filepath.Join(told, "tasks", "pending", name))
	if got := tasks(t, told); err != nil || len(got) != 1 || !strings.Contains(string(b), "\ncommand="+notifier.Command(inbox)+"\n") {
		t.Fatalf("tasks %q, %v\n%s", got, err, b)
	}
	// The task may be running and have looked before this push: it is put again.
	w.push("heard", "ann", "y", "")
	if err := os.Rename(filepath.Join(told, "tasks", "pending", name), filepath.Join(told, "tasks", "done", name)); err != nil {
		t.Fatal(err)
	}
	await(t, "the task again", func() bool { return len(tasks(t, told)) > 0 })
}

// CONTRACTS 1.5: nobody but the sweep removes the lock of a handler that was killed.
func TestLocksOfDeadHandlers(t *testing.T) {
	w := newWorld(t, filepath.Join(t.TempDir(), "a [b] home"), registry.Config{Sweep: 50 * time.Millisecond})
	w.create("a1")
	w.create("a2")
	lock := func(thread, consumer string) (dir, file string) {
		dir = filepath.Join(w.home, "agents", thread)
		file = filepath.Join(dir, "run", consumer+".lock")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("99"), 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Minute)
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
		return dir, file
	}
	dir, living := lock("a2/inbox", "inbox")
	handler := handlerlock.Hold(dir, "inbox")
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(living, old, old); err != nil {
		t.Fatal(err)
	}
	_, others := lock("a1/inbox", "audit")
	dead := make([]string, 3)
	_, dead[0] = lock("a1/threads/peers/x-y", "outbound")
	_, dead[1] = lock("a1/threads/main", "outbound")
	_, dead[2] = lock("a1/inbox", "inbox")
	there := func(file string) bool { _, err := os.Lstat(file); return err == nil }
	await(t, "the end of the locks", func() bool { return !there(dead[0]) && !there(dead[1]) && !there(dead[2]) })
	if !there(living) || !there(others) {
		t.Errorf("a living handler's lock is there: %v, another program's: %v", there(living), there(others))
	}
	handler.Release()
}

// DESIGN 5.2: what another program writes into an inbox that we have just closed is seen by
// the next look, however soon it comes, and by the next run when this one ends before.
func TestForeignMessageToAnInboxAtRest(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	w := newWorld(t, home, registry.Config{Sweep: time.Hour}, func(s *setup) { s.sqlite.Idle = 5 * time.Millisecond })
	w.create("a1")
	inbox := filepath.Join(home, "agents", "a1", "inbox")
	head := func(w *world) int64 {
		r, err := w.agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"})
		return must(t, r, err).GetInbox().GetHeadId()
	}
	const rounds = 10
	for i := range int64(rounds) {
		w.push("a1", "ann", "ours", "")
		await(t, "rest", func() bool { _, err := os.Lstat(filepath.Join(inbox, "events.db-wal")); return os.IsNotExist(err) })
		foreign(t, inbox, "INSERT INTO events(source, type, content) VALUES('external:cli:x:dm:y:y', 'message', '{}')")
		if got := head(w); got != 2*i+2 {
			t.Fatalf("round %d: the head is %d", i, got)
		}
	}
	await(t, "rest", func() bool { _, err := os.Lstat(filepath.Join(inbox, "events.db-wal")); return os.IsNotExist(err) })
	foreign(t, inbox, "INSERT INTO events(source, type, content) VALUES('external:cli:x:dm:y:y', 'message', '{}')")
	w.stop()
	w = newWorld(t, home, registry.Config{Sweep: time.Hour})
	await(t, "the last one", func() bool { return head(w) == 2*rounds+1 })
}
