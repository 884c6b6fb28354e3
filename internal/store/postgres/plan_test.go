package postgres

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// statements are the texts that connections were seen to have prepared.
type statements struct {
	mu   sync.Mutex
	seen map[string]bool
}

// note keeps what the engine's connections have prepared.
func (s *statements) note(t *testing.T, e *Engine) {
	ctx := context.WithoutCancel(t.Context()) // of a cleanup
	for _, c := range e.Pool().AcquireAllIdle(ctx) {
		rows, err := c.Query(ctx, "SELECT statement FROM pg_prepared_statements", pgx.QueryExecModeSimpleProtocol)
		var list []string
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if c.Release(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		for _, sql := range list {
			s.seen[sql] = true
		}
		s.mu.Unlock()
	}
}

var (
	tables = regexp.MustCompile(`(?i)\b(?:FROM|JOIN|INTO|UPDATE) ([a-z_]+)`)
	// ours are tables that hold rows of many agents.
	ours   = strings.Fields("agent agent_file thread due event subscription progress dedupe fence route fate outbox turn step delivery memory lease usage approval question pace agent_log workdir workdir_piece media media_piece origin session")
	scan   = regexp.MustCompile(`(?m)^ *(?:-> +)?((?:Seq|Index|Index Only|Bitmap Heap|Tid) Scan|Bitmap Index Scan).*(?: using | on )(\S+)(?: .*)?$\n?((?:^ *(?:Index Cond|Recheck Cond|Filter).*$\n?)*)`)
	oneRow = regexp.MustCompile(`\bagent_id = \$1\b`)
)

// check holds of every statement that it is bound to one agent, so that a distributed
// PostgreSQL can spread the tables, and that it finds its rows by an index of that agent, so that
// it costs as much among many as among few.
func (s *statements) check(t *testing.T, e *Engine) {
	n, scans := 0, 0
	for _, sql := range slices.Sorted(maps.Keys(s.seen)) {
		found := tables.FindAllStringSubmatch(sql, -1)
		if !slices.ContainsFunc(found, func(m []string) bool { return slices.Contains(ours, m[1]) }) {
			continue
		}
		n++
		if insert := strings.HasPrefix(sql, "INSERT INTO"); !insert && !oneRow.MatchString(sql) || insert && !regexp.MustCompile(`(?:VALUES ?\(|SELECT )\$1\b`).MatchString(sql) {
			t.Errorf("is not bound to the agent $1: %s", sql)
		}
		plan := explain(t, e, sql)
		for _, m := range scan.FindAllStringSubmatch(plan, -1) {
			scans++
			if !bound(m[1], m[2], m[3]) {
				t.Errorf("%s of %s does not start from an agent and its thread in %s\n%s", m[1], m[2], sql, plan)
			}
		}
	}
	if n < 60 || scans < 60 {
		t.Errorf("looked at %d statements with %d scans only", n, scans)
	}
}

// bound reports that a scan of some kind finds its rows by agent and, but for due and
// lease, by thread; those of origin, which has the inbox alone, by the event. Media are of an agent.
func bound(kind, table, conds string) bool {
	switch {
	case kind == "Seq Scan":
		return false
	case kind == "Bitmap Heap Scan": // of what a Bitmap Index Scan below it has found
		return true
	}
	return strings.Contains(conds, "agent_id = ") && (strings.Contains(conds, "thread_id = ") || strings.Contains(conds, "resource = ") ||
		strings.Contains(conds, "inbox_id >= ") || table == "media" || !strings.Contains(conds, "Filter"))
}

// fill makes other agents with threads of a few events, turns and deliveries, so that
// the planner has something to choose from.
func fill(t *testing.T, e *Engine) {
	for _, sql := range []string{
		"INSERT INTO agent(agent_id) SELECT 'z' || i FROM generate_series(1, 100) i",
		"INSERT INTO thread(agent_id, thread_id, uuid, head) SELECT agent_id, CASE i WHEN 0 THEN 'inbox' ELSE 'threads/' || i END, 'u', 40 FROM agent, generate_series(0, 9) i WHERE agent_id LIKE 'z%'",
		"INSERT INTO event SELECT agent_id, thread_id, i, '2026-01-01', 'self', 'message', NULL, 'text', '', '' FROM thread, generate_series(1, 40) i WHERE agent_id LIKE 'z%'",
		"INSERT INTO dedupe SELECT agent_id, thread_id, 'push:' || id, id, 0 FROM event",
		"INSERT INTO fate SELECT agent_id, thread_id, id, 'k', 'threads/1', 'replied', 1 FROM event WHERE thread_id = 'inbox'",
		"INSERT INTO origin(agent_id, inbox_id, thread, session_key) SELECT agent_id, id, 'threads/1', 'agent:a:main' FROM event WHERE thread_id = 'inbox' AND id % 2 = 0",
		"INSERT INTO session(agent_id, thread_id, key, key_folded) SELECT agent_id, thread_id, 'agent:a:K:' || thread_id, 'agent:a:k:' || thread_id FROM thread WHERE agent_id LIKE 'z%' AND thread_id <> 'inbox'",
		"INSERT INTO turn(agent_id, thread_id, key, inbox_id, state) SELECT agent_id, thread_id, 'k' || id, id, 'done' FROM event WHERE thread_id <> 'inbox'",
		"INSERT INTO step(agent_id, thread_id, turn, key, seq, kind, state, recorded_at) SELECT agent_id, thread_id, 'k' || id, 'model:1', 1, 'model', 'done', 1 FROM event WHERE thread_id <> 'inbox'",
		"INSERT INTO delivery(agent_id, thread_id, event_id, key, state, created_at, updated_at) SELECT agent_id, thread_id, id, 'k', 'sent', 1, 1 FROM event WHERE thread_id <> 'inbox'",
		"ANALYZE",
	} {
		exec(t, e, "a", sql)
	}
}

// explain answers the plan that the engine's connections use for a statement.
func explain(t *testing.T, e *Engine, sql string) string {
	t.Helper()
	last := 0
	for _, m := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(sql, -1) {
		n, _ := strconv.Atoi(m[1])
		last = max(last, n)
	}
	values := strings.TrimSuffix(strings.Repeat("NULL, ", last), ", ")
	var lines []string
	if err := e.Pool().AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		list, err := c.Conn().PgConn().Exec(t.Context(), "PREPARE it AS "+sql+"; EXPLAIN EXECUTE it("+values+"); DEALLOCATE it").ReadAll()
		for _, r := range list {
			for _, row := range r.Rows {
				lines = append(lines, string(row[0]))
			}
		}
		return err
	}); err != nil {
		t.Fatalf("%v in %s", err, sql)
	}
	return strings.Join(lines, "\n")
}
