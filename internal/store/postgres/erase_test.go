package postgres

import (
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

// While the agent is started, or anybody has one of its leases, nothing is erased; the
// transaction itself sees to it, whatever its registry believed.
func TestEraseAtRest(t *testing.T) {
	c := cluster(t, "fsync = off")
	e := open(t, Options{DSN: c.Database(t)})
	defer func() { _ = e.Close() }()
	inbox := store.Inbox("a")
	if _, err := e.Append(t.Context(), inbox, []store.NewEvent{message}, store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	content := func() string {
		p, err := e.Read(t.Context(), inbox, store.Query{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return p.Events[0].Content
	}
	const held = `INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at) VALUES('a', $1, 1, 'r1', '', '', 1, now() + $2 * interval '1 hour')`
	const given = "DELETE FROM lease WHERE agent_id = 'a'"
	for _, tt := range []struct {
		name, make, back string
		args             []any
		rest             bool
	}{
		{name: "started", make: "UPDATE thread SET desired = 'started' WHERE agent_id = 'a'", back: "UPDATE thread SET desired = 'stopped' WHERE agent_id = 'a'"},
		{name: "a runner works", make: held, args: []any{"agent/a", 1}, back: given},
		{name: "a deliverer works", make: held, args: []any{"deliver/a", 1}, back: given},
		{name: "a lease has run out", make: held, args: []any{"agent/a", -1}, back: given, rest: true},
	} {
		exec(t, e, "a", tt.make, tt.args...)
		err := e.Erase(t.Context(), inbox, store.PeerShare{Events: []int64{1}})
		if tt.rest && err != nil || !tt.rest && !fault.Is(err, fault.LeaseHeld) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if erased := content() == store.Erased; erased != tt.rest {
			t.Errorf("%s: erased %v", tt.name, erased)
		}
		exec(t, e, "a", tt.back)
	}
}
