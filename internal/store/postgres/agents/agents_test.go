package agents_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// A file of no agent is told as that, and a server that has gone as an input/output
// error, which a caller repeats: at a connection that stood, and at a new one.
func TestProblems(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	s, err := pool.Open(t.Context(), c.Database(t))
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

// anyRow makes the statement that puts a row of a1, of its inbox, into a table.
const anyRow = `SELECT format('INSERT INTO %I(%s) VALUES(%s)', $1::text, string_agg(quote_ident(column_name), ', '), string_agg(CASE
		WHEN column_name = 'agent_id' THEN quote_literal('a1') WHEN column_name = 'thread_id' THEN quote_literal('inbox')
		WHEN data_type = 'ARRAY' THEN quote_literal('{}') WHEN data_type LIKE 'timestamp%' THEN 'now()' WHEN data_type = 'boolean' THEN 'true' WHEN data_type IN ('text', 'bytea') THEN quote_literal('canary')
		ELSE '1' END, ', '))
	FROM information_schema.columns WHERE table_schema = 'public' AND table_name = $1 AND is_identity = 'NO'`

// A removed agent has no row in any table but the tokens of its leases; one of the name
// comes whole again, with tokens above them.
func TestRemove(t *testing.T) {
	c := pgtest.Shared(t)
	s, err := pool.Open(t.Context(), c.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d, pool := agents.New(s), s
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
	rows, err := pool.Query(t.Context(), "SELECT DISTINCT table_name::text FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'agent_id' AND table_name NOT IN ('moved', 'arriving')")
	do(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	do(err)
	left := func(table string) (n int) {
		t.Helper()
		do(pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" x WHERE agent_id = 'a1' AND ('"+table+"' <> 'lease' OR x::text LIKE '%canary%')").Scan(&n))
		return n
	}
	for _, name := range tables {
		if left(name) == 0 {
			var q string
			do(pool.QueryRow(t.Context(), anyRow, name).Scan(&q))
			run(q)
		}
	}
	do(d.Remove(t.Context(), "a1"))
	for _, name := range tables {
		if n := left(name); n != 0 {
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
