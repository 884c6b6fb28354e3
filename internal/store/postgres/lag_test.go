package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// Agents with work are counted, with none are not, and of very many those that wait
// longest; idle ones cost nothing.
func TestLag(t *testing.T) {
	s, err := pool.Open(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	db := s
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO agent(agent_id) SELECT 'a' || i FROM generate_series(1, 3000) i;
		INSERT INTO thread(agent_id, thread_id, uuid, head, acked) SELECT agent_id, 'inbox', 'u', 9, 4 FROM agent;
		INSERT INTO due(agent_id, since) VALUES('a7', now() - interval '1 hour'), ('a8', now());
		INSERT INTO outbox(agent_id, thread_id, thread, head, acked) VALUES('a7', 'inbox', 'threads/x', 3, 1), ('a7', 'inbox', 'threads/y', 9, 1), ('a9', 'inbox', 'threads/x', 3, 3);
		ANALYZE`)
	in, acked, out, err := (&Engine{db: s}).Lag(t.Context())
	if err != nil || fmt.Sprint(in, acked, out) != "map[a7:5 a8:5] map[a7:4 a8:4] map[a7:2]" {
		t.Errorf("%v %v %v %v", in, acked, out, err)
	}
	exec(`INSERT INTO due(agent_id) SELECT agent_id FROM agent ON CONFLICT DO NOTHING;
		INSERT INTO outbox(agent_id, thread_id, thread, head) SELECT agent_id, 'inbox', 'threads/z', 1 FROM agent; ANALYZE`)
	in, _, out, err = (&Engine{db: s}).Lag(t.Context())
	if err != nil || len(in) != lagLimit || in["a7"] != 5 || out["a7"] == 0 {
		t.Errorf("%d and %d agents, %v", len(in), len(out), err)
	}
	for _, sql := range []string{"SELECT agent_id FROM due ORDER BY since, agent_id LIMIT 1000", "SELECT agent_id FROM outbox WHERE acked < head ORDER BY since, agent_id LIMIT 1000"} {
		rows, err := db.Query(t.Context(), "EXPLAIN "+sql)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || !strings.Contains(fmt.Sprint(plan), "Index Only Scan") {
			t.Errorf("%v %v", plan, err)
		}
	}
}
