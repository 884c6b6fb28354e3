package world_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// many are the agents of the test; `make bench-postgres` has 100,000.
const many = 20_000

// With many agents in the database a registry starts, lists a page, tells how one is, and
// hands over and answers a message without reading what it does not answer: the server
// counts the rows, whatever its plans were.
func TestManyAgentsStayFlat(t *testing.T) {
	c := pgtest.Start(t, "fsync = off", "autovacuum = off")
	url := c.Database(t)
	o := world.Options{Runners: 1}
	o.DSN = url
	w := world.Start(t, o)
	w.Create(t, "template-agent", "")
	w.Stop()

	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	like(t, db, "template-agent", many)
	if _, err := db.Exec(t.Context(), "SELECT pg_stat_reset()"); err != nil {
		t.Fatal(err)
	}

	w = world.Start(t, o)
	r, err := w.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{PageSize: 100})
	if err != nil || len(r.GetAgents()) != 100 || r.GetNextPageToken() == "" {
		t.Errorf("a page has %d agents, %v", len(r.GetAgents()), err)
	}
	for _, a := range r.GetAgents() {
		if a.GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_OK || !a.GetStarted() {
			t.Fatalf("an agent of the page is %v", a)
		}
	}
	for i := range 10 {
		id := fmt.Sprintf("many-%06d", i*many/10)
		if _, err := w.Agents.GetAgent(t.Context(), &registryv1.GetAgentRequest{AgentId: id}); err != nil {
			t.Error(err)
		}
		if turn := w.Say(t, id, world.Peer("bob"), "hello"); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
			t.Errorf("answered %v", turn)
		}
	}
	w.Stop() // what its connections have counted is told

	rows, err := db.Query(t.Context(), "SELECT relname, COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables")
	if err != nil {
		t.Fatal(err)
	}
	var table string
	var read, sum int64
	if _, err := pgx.ForEachRow(rows, []any{&table, &read}, func() error {
		if sum += read; read > many/4 {
			t.Errorf("%d rows of %s were read, there are %d agents", read, table, many)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if sum < 100 {
		t.Errorf("%d rows were read in all: the server has not counted", sum)
	}
	t.Logf("%d rows were read of %d agents", sum, many)
}

// like copies an agent n times.
func like(t *testing.T, db *pgx.Conn, id string, n int) {
	t.Helper()
	const name = "'many-' || to_char(i, 'FM000000')"
	for _, q := range []string{
		"INSERT INTO agent(agent_id) SELECT " + name + " FROM generate_series(0, $2::int - 1) i WHERE $1 <> ''",
		"INSERT INTO thread(agent_id, thread_id, uuid, desired) SELECT " + name + ", thread_id, md5(i::text), desired FROM generate_series(0, $2::int - 1) i, thread WHERE agent_id = $1 AND thread_id = 'inbox'",
		`INSERT INTO subscription(agent_id, thread_id, consumer, handler, filter) SELECT ` + name + `, thread_id, consumer, handler, filter
			FROM generate_series(0, $2::int - 1) i, subscription WHERE agent_id = $1 AND thread_id = 'inbox'`,
		`INSERT INTO agent_file(agent_id, name, content, version) SELECT id, name, content, encode(sha256(content), 'hex') FROM (
			SELECT ` + name + ` AS id, name, convert_to(replace(convert_from(content, 'UTF8'), $1, ` + name + `), 'UTF8') AS content
			FROM generate_series(0, $2::int - 1) i, agent_file WHERE agent_id = $1) f`,
		`INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at, released)
			SELECT ` + name + `, split_part(resource, '/', 1) || '/' || ` + name + `, 0, '', '', '', 0, clock_timestamp(), true
			FROM generate_series(0, $2::int - 1) i, lease WHERE agent_id = $1`,
	} {
		if _, err := db.Exec(t.Context(), q, id, n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
		t.Fatal(err)
	}
}
