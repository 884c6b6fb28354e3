package agents_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/shard"
)

// A file of no agent is told as that, and a server that has gone as an input/output
// error, which a caller repeats: at a connection that stood, and at a new one.
func TestProblems(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	s, err := shard.Open(t.Context(), []string{c.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d := agents.New(s)
	for _, expect := range []string{"", agentdir.NoFile, "other"} {
		if _, err := d.Write(t.Context(), "nobody", "USAGE.md", []byte("x"), expect); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("expect %q: %v, want not found", expect, err)
		}
	}
	c.Kill(t)
	for _, which := range []string{"standing", "new"} {
		if err := d.Has(t.Context(), "nobody"); !errors.Is(err, store.ErrIO) {
			t.Errorf("%s connection: %v, want an input/output error", which, err)
		}
	}
}

// A removed agent has no row but the tokens of its leases; one of the name comes whole
// again, with tokens above them.
func TestRemove(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	s, err := shard.Open(t.Context(), []string{c.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d, pool := agents.New(s), s.Of("a1")
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(q string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), q)
		do(err)
	}
	for _, id := range []string{"a1", "a2"} {
		do(d.Create(t.Context(), id, map[string][]byte{"USAGE.md": []byte("canary")}))
	}
	run("UPDATE lease SET token = 7, holder = 'canary', released = false WHERE agent_id = 'a1'")
	run("INSERT INTO usage VALUES('a1', '2020-01-01', 'canary', 1, 1, 1)")
	run("INSERT INTO due(agent_id) VALUES('a1')")
	run("INSERT INTO approval(agent_id, id, thread, key, command, cwd, reason, digest, state, token, requested, expires) VALUES('a1', 'i', 't', 'k', 'canary', '/', '', '', 'pending', 1, 1, 1)")
	run("INSERT INTO event(agent_id, thread_id, id, created_at, source, type, content, prev, sha256) VALUES('a1', 'inbox', 1, '', '', '', 'canary', '', '')")
	do(d.Remove(t.Context(), "a1"))
	rows, err := pool.Query(t.Context(), "SELECT table_name::text FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'agent_id'")
	do(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	do(err)
	if len(tables) < 15 {
		t.Fatalf("looked at %q", tables)
	}
	for _, name := range tables {
		var n int
		do(pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+" x WHERE agent_id = 'a1' AND ('"+name+"' <> 'lease' OR x::text LIKE '%canary%')").Scan(&n))
		if n != 0 {
			t.Errorf("%d rows in %s", n, name)
		}
	}
	if err := d.Remove(t.Context(), "a1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("removed again: %v", err)
	}
	do(d.Has(t.Context(), "a2"))
	do(d.Create(t.Context(), "a1", nil))
	var token int64
	do(pool.QueryRow(t.Context(), "SELECT min(token) FROM lease WHERE agent_id = 'a1' AND released").Scan(&token))
	if token != 7 {
		t.Errorf("the new one begins above token %d, want 7", token)
	}
}
