package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// I13: whatever is changed in a thread from outside, the first event that does not
// match is named.
func TestVerifyChain(t *testing.T) {
	c := cluster(t, "fsync = off")
	for _, tt := range []struct{ change, says string }{
		{"UPDATE thread SET acked = 0", ""},
		{"UPDATE event SET content = 'x' WHERE id = 2", "event 2 does not match"},
		{"UPDATE event SET subtype = '' WHERE id = 1", "event 1 does not match"},
		{"UPDATE event SET prev = sha256 WHERE id = 1", "event 1 does not match"},
		{"DELETE FROM event WHERE id = 1", "event 2 does not match"},
		{"DELETE FROM event WHERE id = 2", "event 3 does not match"},
		{"DELETE FROM event WHERE id = 3", "ends with event 2, and its head is 3"},
		{"UPDATE thread SET chain = 'x'", "ends with event 3"},
		{"INSERT INTO event SELECT agent_id, thread_id, 4, created_at, source, type, subtype, content, prev, sha256 FROM event WHERE id = 3", "event 4 does not match"},
	} {
		e := open(t, Options{DSN: c.Database(t)})
		var list []store.NewEvent
		for i := range 3 {
			list = append(list, store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: fmt.Sprintf("%d \x00\xff\x01", i)})
		}
		if _, err := e.Append(t.Context(), store.Inbox("a"), list, store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		exec(t, e, "a", tt.change)
		n, err := e.VerifyChain(t.Context(), store.Inbox("a"))
		if tt.says == "" {
			if n != 3 || err != nil {
				t.Errorf("%d events, %v", n, err)
			}
		} else if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.change, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
