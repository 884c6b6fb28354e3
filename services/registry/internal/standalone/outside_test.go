package standalone_test

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
	"github.com/theclaw/agents/internal/testing/backendtest"
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

// CONTRACTS 1.5: who subscribed to a thread from outside hears of our
// commits as of the external tool's; a filter that does not work stops nobody.
func TestForeignSubscription(t *testing.T) {
	told := t.TempDir()
	w := start(t, backendtest.Options{Home: filepath.Join(t.TempDir(), "home"), Change: func(d *registry.Deps) {
		d.Notifier = func() (string, bool) { return told, true }
	}}, registry.Config{Sweep: 50 * time.Millisecond})
	w.Create("plain")
	w.Create("heard")
	inbox := filepath.Join(w.Home, "agents", "heard", "inbox")
	const subscribe = "INSERT INTO subscriptions(consumer_id, handler_cmd, filter) VALUES(?,?,?)"
	foreign(t, inbox, subscribe, "broken", "true", "type=message AND source=self")
	foreign(t, inbox, subscribe, "audit", "audit 'x'", nil)

	w.Push("plain", "ann", "x", "")
	w.Push("heard", "ann", "x", "")
	name := "external:telegram:main:dm:ann:ann-" + notifier.TaskID(inbox) + ".txt"
	backendtest.Await(t, "a task", func() bool { return len(tasks(t, told)) > 0 })
	b, err := os.ReadFile(filepath.Join(told, "tasks", "pending", name))
	if got := tasks(t, told); err != nil || len(got) != 1 || !strings.Contains(string(b), "\ncommand="+notifier.Command(inbox)+"\n") {
		t.Fatalf("tasks %q, %v\n%s", got, err, b)
	}
	// The task may be running and have looked before this push: it is put again.
	w.Push("heard", "ann", "y", "")
	if err := os.Rename(filepath.Join(told, "tasks", "pending", name), filepath.Join(told, "tasks", "done", name)); err != nil {
		t.Fatal(err)
	}
	backendtest.Await(t, "the task again", func() bool { return len(tasks(t, told)) > 0 })
}

// CONTRACTS 1.5: nobody but the sweep removes the lock of a handler that was killed.
func TestLocksOfDeadHandlers(t *testing.T) {
	w := start(t, backendtest.Options{Home: filepath.Join(t.TempDir(), "a [b] home")}, registry.Config{Sweep: 50 * time.Millisecond})
	w.Create("a1")
	w.Create("a2")
	lock := func(thread, consumer string) (dir, file string) {
		dir = filepath.Join(w.Home, "agents", thread)
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
	backendtest.Await(t, "the end of the locks", func() bool { return !there(dead[0]) && !there(dead[1]) && !there(dead[2]) })
	if !there(living) || !there(others) {
		t.Errorf("a living handler's lock is there: %v, another program's: %v", there(living), there(others))
	}
	handler.Release()
}

// RELIABILITY "Foreign pushes": what another program writes into an inbox that we have just closed is seen by
// the next look, however soon it comes, and by the next run when this one ends before.
func TestForeignMessageToAnInboxAtRest(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	w := start(t, backendtest.Options{Home: home, Idle: 5 * time.Millisecond}, registry.Config{Sweep: time.Hour})
	w.Create("a1")
	inbox := filepath.Join(home, "agents", "a1", "inbox")
	head := func(w *world) int64 {
		r, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"})
		return backendtest.Must(t, r, err).GetInbox().GetHeadId()
	}
	const rounds = 10
	for i := range int64(rounds) {
		w.Push("a1", "ann", "ours", "")
		backendtest.Await(t, "rest", func() bool { _, err := os.Lstat(filepath.Join(inbox, "events.db-wal")); return os.IsNotExist(err) })
		foreign(t, inbox, "INSERT INTO events(source, type, content) VALUES('external:cli:x:dm:y:y', 'message', '{}')")
		if got := head(w); got != 2*i+2 {
			t.Fatalf("round %d: the head is %d", i, got)
		}
	}
	backendtest.Await(t, "rest", func() bool { _, err := os.Lstat(filepath.Join(inbox, "events.db-wal")); return os.IsNotExist(err) })
	foreign(t, inbox, "INSERT INTO events(source, type, content) VALUES('external:cli:x:dm:y:y', 'message', '{}')")
	w.Stop()
	w = start(t, backendtest.Options{Home: home}, registry.Config{Sweep: time.Hour})
	backendtest.Await(t, "the last one", func() bool { return head(w) == 2*rounds+1 })
}
