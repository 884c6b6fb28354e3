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
		e := open(t, Options{DSN: url})
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
	if _, err := e.Pool().Exec(t.Context(), sql, append([]any{pgx.QueryExecModeExec}, args...)...); err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	c := cluster(t, "fsync = off")
	said := statements{seen: map[string]bool{}}
	storetest.Run(t, storetest.Suite{
		New: func(t *testing.T, o storetest.Options) store.Engine {
			e := open(t, Options{DSN: c.Database(t), Live: o.Live, OnCommit: o.OnCommit})
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
				`UPDATE thread SET last_at = to_char(last_at::timestamptz AT TIME ZONE 'UTC' - $1 * interval '1 ms', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') WHERE last_at <> ''`,
				`UPDATE event SET created_at = to_char(created_at::timestamptz AT TIME ZONE 'UTC' - $1 * interval '1 ms', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`,
				"UPDATE process SET started_at = started_at - $1, ended_at = CASE ended_at WHEN 0 THEN 0 ELSE ended_at - $1 END",
				"UPDATE step SET recorded_at = recorded_at - $1",
				"UPDATE media SET at = at - $1",
			} {
				exec(t, e.(noted).Engine, "a", sql, d.Milliseconds())
			}
		},
	})
	t.Run("statements", func(t *testing.T) {
		e := open(t, Options{DSN: c.Database(t)})
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
