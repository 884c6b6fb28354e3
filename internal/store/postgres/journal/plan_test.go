package journal_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// No step walks through a thread: each statement finds its rows by an index, in a
// thread of 20,000 turns, whatever values it is given. Tables of one page would be read
// whole all the same, so the server is told not to.
func TestPlans(t *testing.T) {
	ctx := context.Background()
	seen := &trips{}
	db := fresh(t, pgtest.Shared(t), seen)
	for _, q := range []string{
		"UPDATE thread SET head = 40000, acked = 40000 WHERE thread_id = 'threads/x'",
		`INSERT INTO event(agent_id, thread_id, id, created_at, source, type, content, prev, sha256)
			SELECT 'a', 'threads/x', n, '2026-01-01T00:00:00.000Z', CASE n % 2 WHEN 0 THEN 'self' ELSE 'x' END, 'message', 'c', '', '' FROM generate_series(1, 40000) n`,
		`INSERT INTO turn(agent_id, thread_id, key, inbox_id, state, fate, reply_id)
			SELECT 'a', 'threads/x', 'u:' || (1000000 + n) || ':0', n, 'done', 'replied', 2 * n FROM generate_series(1, 20000) n`,
		`INSERT INTO step(agent_id, thread_id, turn, key, seq, kind, state, recorded_at)
			SELECT 'a', 'threads/x', 'u:' || (1000000 + n) || ':0', 'model:1', 1, 'model', 'done', 0 FROM generate_series(1, 20000) n`,
		`INSERT INTO delivery(agent_id, thread_id, event_id, key, state, created_at, updated_at)
			SELECT 'a', 'threads/x', 2 * n, n::text, 'sent', 0, 0 FROM generate_series(1, 20000) n`,
		`INSERT INTO dedupe(agent_id, thread_id, key, event_id, token)
			SELECT 'a', 'threads/x', 'u:' || (1000000 + n / 2) || ':0' || CASE n % 2 WHEN 0 THEN ':in' ELSE ':out' END, n, 1 FROM generate_series(1, 40000) n`,
		"VACUUM ANALYZE",
	} {
		if _, err := db.Exec(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	plans(t, db, seen, "Seq Scan", "Hash ", "Merge ")
}

// A plan that is made while threads are short is kept when they grow: it must not be one
// to walk through the thread then either.
func TestPlansOfShortThreads(t *testing.T) {
	seen := &trips{}
	db := fresh(t, pgtest.Shared(t), seen)
	for _, q := range []string{
		"INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) SELECT 'a', 'threads/x', 'k' || n, n, 1 FROM generate_series(1, 8) n",
		"INSERT INTO turn(agent_id, thread_id, key, inbox_id, state) SELECT 'a', 'threads/x', 'k' || n, n, 'done' FROM generate_series(1, 8) n",
		"ANALYZE",
	} {
		if _, err := db.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	plans(t, db, seen, "Filter: (key = ANY ($3))", "Filter: (name = ANY ($3))")
}

// plans fails for each statement of a turn whose plan has one of some words in it.
func plans(t *testing.T, db *pgxpool.Pool, seen *trips, bad ...string) {
	t.Helper()
	ctx, p, list := t.Context(), unit.New(unit.Options{Pool: db}), steps(1)
	seen.sent = nil
	do := func(name string, s unit.Step) {
		t.Helper()
		if err := p.Do(ctx, talk, fence(name), s); err != nil {
			t.Fatal(err)
		}
	}
	do("begin", list["begin"])
	do("begin", steps(1)["begin"]) // again, after a crash
	for _, name := range names[1:4] {
		do(name, list[name])
	}
	for _, trip := range seen.sent {
		for _, s := range trip.list {
			if !strings.Contains(s.sql, "$1") {
				continue
			}
			plan := explain(t, db, s)
			for _, word := range bad {
				if strings.Contains(plan, word) {
					t.Errorf("%s\n%s", s.sql, plan)
				}
			}
		}
	}
}

// explain is the plan of a statement for any values.
func explain(t *testing.T, db *pgxpool.Pool, s statement) string {
	t.Helper()
	c, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	values := strings.TrimSuffix(strings.Repeat("NULL, ", len(s.args)), ", ")
	out, err := c.Conn().PgConn().Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; PREPARE p AS "+s.sql+"; EXPLAIN (COSTS OFF) EXECUTE p("+values+"); DEALLOCATE p").ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", s.sql, err)
	}
	var lines []string
	for _, r := range out {
		for _, row := range r.Rows {
			lines = append(lines, string(row[0]))
		}
	}
	return strings.Join(lines, "\n")
}
