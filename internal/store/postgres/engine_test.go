package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/storetest"
)

func anyLease(string, uint64) error { return nil }

// cluster is a server whose databases have the tables, the agents "a" and "b", and
// their inboxes.
func cluster(t testing.TB, settings ...string) *pgtest.Cluster {
	t.Helper()
	c := pgtest.Start(t, settings...)
	c.Template(t, func(url string) {
		e := open(t, Options{DSNs: []string{url}})
		agents(t, e, "a", "b")
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
	return c
}

// open opens an engine; the caller closes it.
func open(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// agents makes agents with their inboxes.
func agents(t testing.TB, e *Engine, ids ...string) {
	t.Helper()
	for _, id := range ids {
		exec(t, e, id, "INSERT INTO agent(agent_id) VALUES($1)", id)
		if _, err := e.Ensure(t.Context(), store.Inbox(id), ""); err != nil {
			t.Fatal(err)
		}
	}
}

// exec changes the database of an agent from outside; no connection remembers it.
func exec(t testing.TB, e *Engine, agent, sql string, args ...any) {
	t.Helper()
	if _, err := e.Shards().Of(agent).Exec(t.Context(), sql, append([]any{pgx.QueryExecModeExec}, args...)...); err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	c := cluster(t, "fsync = off")
	said := statements{seen: map[string]bool{}}
	storetest.Run(t, storetest.Suite{
		New: func(t *testing.T, o storetest.Options) store.Engine {
			e := open(t, Options{DSNs: []string{c.Database(t)}, Live: o.Live, OnCommit: o.OnCommit})
			return noted{e, func() { said.note(t, e) }}
		},
		Pass: func(t *testing.T, e store.Engine, d time.Duration) {
			for _, sql := range []string{
				"UPDATE turn SET not_before = not_before - $1 WHERE not_before > 0",
				"UPDATE turn SET waiting_since = waiting_since - $1 WHERE waiting_since > 0",
				"UPDATE turn SET claimed_at = claimed_at - $1, finished_at = finished_at - $1 WHERE claimed_at > $1 AND finished_at > $1",
				"UPDATE delivery SET not_before = not_before - $1 WHERE not_before > 0",
				"UPDATE delivery SET created_at = created_at - $1, updated_at = updated_at - $1",
				"UPDATE fate SET at = at - $1",
				"UPDATE step SET recorded_at = recorded_at - $1",
			} {
				exec(t, e.(noted).Engine, "a", sql, d.Milliseconds())
			}
		},
	})
	t.Run("statements", func(t *testing.T) {
		e := open(t, Options{DSNs: []string{c.Database(t)}})
		said.check(t, e)
		fill(t, e)
		said.check(t, e)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// noted is an engine whose statements are noted at its end.
type noted struct {
	*Engine
	note func()
}

func (n noted) Close() error {
	n.note()
	return n.Engine.Close()
}

// Agents are spread over databases by their ids, each with all it has; the contract
// does not see it.
func TestShards(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	urls := []string{c.Database(t), c.Database(t), c.Database(t)}
	e := open(t, Options{DSNs: urls, Live: anyLease})
	agents(t, e, "a", "b", "c", "d", "e", "f")
	for _, agent := range []string{"a", "b", "c", "d", "e", "f"} {
		out, err := e.Append(t.Context(), store.Inbox(agent), []store.NewEvent{message}, store.AppendOptions{})
		if err != nil || out.IDs[0] != 1 {
			t.Fatalf("%s: %v, %v", agent, out, err)
		}
		acked, err := e.Settle(t.Context(), agent, store.Fence{Resource: "agent/" + agent, Token: 1}, store.Settlement{InboxID: 1, Key: "k", Fate: store.FateSilent})
		if err != nil || acked != 1 {
			t.Errorf("%s: acked %d, %v", agent, acked, err)
		}
	}
	sum := 0
	for i, p := range e.Shards().All() {
		var here, elsewhere int
		if err := p.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM fate f WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.agent_id = f.agent_id))").Scan(&here, &elsewhere); err != nil || here == 0 || elsewhere != 0 {
			t.Errorf("database %d has %d events, and %d fates of others, %v", i, here, elsewhere, err)
		}
		sum += here
	}
	if sum != 6 {
		t.Errorf("%d events in all", sum)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
