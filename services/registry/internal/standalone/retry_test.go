package standalone_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// A message that is tried again is a new event, and goes where the first one was sent,
// whatever the routing is now.
func TestRetryKeepsTheOrigin(t *testing.T) {
	o := backendtest.Options{Home: filepath.Join(t.TempDir(), "h")}
	w := start(t, o, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hello", "k")
	w.Toil("a1", registryv1.Fate_FATE_DEAD)
	w.Stop()
	inbox := filepath.Join(o.Home, "agents", "a1", "inbox")
	const thread, key = "threads/dms/telegram-17", "agent:a1:telegram:dm:17"
	foreign(t, inbox, "INSERT INTO x_origin(inbox_id, thread, session_key, account, provider_id, rev, sent_at) VALUES(1, ?, ?, 'work', '4711', 3, 1764200000123)", thread, key)

	w = start(t, o, registry.Config{})
	for range 2 { // asked for twice, it is tried once
		out, err := w.Turns.RetryTurn(t.Context(), &registryv1.RetryTurnRequest{AgentId: "a1", InboxId: 1})
		if id := backendtest.Must(t, out, err).GetInboxId(); id != 2 {
			t.Fatalf("inbox event %d, want 2", id)
		}
	}
	turn, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: 2})
	if got := backendtest.Must(t, turn, err).GetTurn().GetThreadId(); got != thread {
		t.Errorf("conversation of the copy: %s, want %s", got, thread)
	}
	w.Stop()
	db, err := sql.Open("sqlite", filepath.Join(inbox, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var same int
	err = db.QueryRow(`SELECT COUNT(*) FROM x_origin a JOIN x_origin b USING (thread, session_key, account, provider_id, rev, command, sent_at, cause, task)
		WHERE a.inbox_id = 1 AND b.inbox_id = 2 AND session_key = ?`, key).Scan(&same)
	if err != nil || same != 1 {
		t.Errorf("copies of the origin: %d, %v", same, err)
	}
}
