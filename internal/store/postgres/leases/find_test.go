package leases_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
)

func exec(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// makeAgents makes started agents a000000... with their rows, none of them due.
func makeAgents(t testing.TB, db *pgxpool.Pool, n int) {
	t.Helper()
	for _, q := range []string{
		"INSERT INTO agent(agent_id) SELECT 'a' || to_char(i, 'FM000000') FROM generate_series(0, $1::int - 1) i",
		"INSERT INTO thread(agent_id, thread_id, uuid, desired) SELECT 'a' || to_char(i, 'FM000000'), 'inbox', '', 'started' FROM generate_series(0, $1::int - 1) i",
		`INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at, released)
			SELECT 'a' || to_char(i, 'FM000000'), k || '/a' || to_char(i, 'FM000000'), 0, '', '', '', 0, clock_timestamp(), true
			FROM generate_series(0, $1::int - 1) i, unnest(ARRAY['agent', 'deliver']) k`,
	} {
		exec(t, db, q, n)
	}
}

// push makes an agent due, as a commit in its inbox does.
func push(t testing.TB, db *pgxpool.Pool, agent string) {
	t.Helper()
	exec(t, db, "UPDATE thread SET head = head + 1 WHERE agent_id = $1 AND thread_id = 'inbox'", agent)
	exec(t, db, "INSERT INTO due(agent_id) VALUES($1) ON CONFLICT DO NOTHING", agent)
}

func find(t testing.TB, l *leases.Table, a store.DueQuery) (names []string, found []store.DueAgent, waiting int) {
	t.Helper()
	found, waiting, err := l.Find(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		names = append(names, f.Agent)
	}
	return names, found, waiting
}

// The oldest first and each to one; a holder is told of what is new, once; a repeat of
// the question gets the same; who was served stands behind those who wait.
func TestFindRun(t *testing.T) {
	db := database(t, pgtest.Shared(t))
	makeAgents(t, db, 4)
	l := leases.New(db, nil)
	for _, a := range []string{"a000002", "a000000", "a000001"} {
		push(t, db, a)
	}
	ask := func(holder, request string, n int, only ...string) store.DueQuery {
		return store.DueQuery{Holder: holder, Address: "at-" + holder, RequestID: request, TTL: time.Minute, MaxNew: n, All: len(only) == 0, Free: only}
	}
	names, found, waiting := find(t, l, ask("h1", "q1", 2))
	if !slices.Equal(names, []string{"a000002", "a000000"}) || waiting != 1 || !found[0].Fresh || found[0].Lease.Token != 1 || found[0].Head != 1 || found[0].Lease.Holder != "h1" {
		t.Fatalf("found %+v, %d wait", found, waiting)
	}
	if again, found, _ := find(t, l, ask("h1", "q1", 0)); len(again) != 2 || !found[0].Fresh || !found[1].Fresh {
		t.Errorf("the repeat: %+v", found)
	}
	if names, _, _ := find(t, l, ask("h2", "q2", 5, "a000000")); len(names) != 0 {
		t.Errorf("held by another, and found: %v", names)
	}
	if names, _, waiting := find(t, l, ask("h2", "q3", 5)); !slices.Equal(names, []string{"a000001"}) || waiting != 0 {
		t.Errorf("the rest: %v, %d wait", names, waiting)
	}
	if names, _, _ := find(t, l, ask("h1", "q4", 5)); len(names) != 0 {
		t.Errorf("told twice: %v", names)
	}
	push(t, db, "a000000")
	mine := ask("h1", "q5", 1)
	mine.All, mine.Mine = false, []string{"a000000", "a000003"}
	push(t, db, "a000003") // free, and nobody said so
	for i, want := range []int{1, 0} {
		if names, found, _ := find(t, l, mine); len(names) != want || want > 0 && (found[0].Fresh || found[0].Head != 2 || found[0].Lease.Token != 1) {
			t.Errorf("look %d at what is new: %+v", i, found)
		}
	}
	for _, a := range []string{"a000002", "a000000"} {
		if err := l.Release(t.Context(), "agent/"+a, 1); err != nil {
			t.Fatal(err)
		}
	}
	if names, found, _ := find(t, l, ask("h3", "q6", 3)); !slices.Equal(names, []string{"a000002", "a000000", "a000003"}) || found[0].Lease.Token != 2 {
		t.Errorf("released: %+v", found)
	}
}

func TestFindDeliver(t *testing.T) {
	db := database(t, pgtest.Shared(t))
	makeAgents(t, db, 3)
	l := leases.New(db, nil)
	ask := store.DueQuery{Deliver: true, Holder: "d1", RequestID: "q1", TTL: time.Minute, MaxNew: 1, All: true}
	reply := func(agent, thread string) {
		exec(t, db, "INSERT INTO outbox(agent_id, thread_id, thread, head) VALUES($1, 'inbox', $2, 1) ON CONFLICT (agent_id, thread_id, thread) DO UPDATE SET head = outbox.head + 1", agent, thread)
	}
	reply("a000001", "t1")
	reply("a000001", "t2")
	reply("a000000", "t1")
	names, found, waiting := find(t, l, ask)
	if !slices.Equal(names, []string{"a000001"}) || !slices.Equal(found[0].Threads, []string{"t1", "t2"}) || waiting != 1 || found[0].Lease.Resource != "deliver/a000001" {
		t.Fatalf("found %+v, %d wait", found, waiting)
	}
	ask.RequestID = "q2"
	if _, found, _ := find(t, l, ask); len(found) != 1 || found[0].Agent != "a000000" || !slices.Equal(found[0].Threads, []string{"t1"}) {
		t.Errorf("found %+v", found)
	}
	reply("a000001", "t2")
	ask.RequestID = "q3"
	for i, want := range []int{1, 0} {
		if _, found, _ := find(t, l, ask); len(found) != want || want > 0 && (found[0].Fresh || !slices.Equal(found[0].Threads, []string{"t2"})) {
			t.Errorf("look %d: %+v", i, found)
		}
	}
}

// Many who look at once: each agent goes to one of them, none is left.
func TestFindRace(t *testing.T) {
	db := database(t, pgtest.Shared(t))
	const agents, holders = 200, 8
	makeAgents(t, db, agents)
	for i := range agents {
		push(t, db, fmt.Sprintf("a%06d", i))
	}
	l := leases.New(db, nil)
	var mu sync.Mutex
	owner := map[string]string{}
	var g sync.WaitGroup
	for h := range holders {
		g.Go(func() {
			name := fmt.Sprint("h", h)
			for i := 0; ; i++ {
				found, _, err := l.Find(t.Context(), store.DueQuery{Holder: name, RequestID: fmt.Sprint(i), TTL: time.Minute, MaxNew: 7, All: true})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, f := range found {
					if owner[f.Agent] != "" {
						t.Errorf("%s is %s's and %s's", f.Agent, owner[f.Agent], name)
					}
					owner[f.Agent] = name
				}
				n := len(owner)
				mu.Unlock()
				if n == agents {
					return
				}
			}
		})
	}
	g.Wait()
}

// With many agents (100,000 was tried), what is done for each message reads by index only: its cost is
// that of what it answers.
func TestFindStaysFlat(t *testing.T) {
	db := database(t, pgtest.Start(t, "fsync = off", "autovacuum = off"))
	config := db.Config()
	config.MaxConns = 1 // one session counts what it reads
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db = pool
	makeAgents(t, db, 20_000)
	for i := range 50 {
		push(t, db, fmt.Sprintf("a%06d", i*397))
	}
	exec(t, db, "ANALYZE")
	l := leases.New(db, nil)
	begun := time.Now()
	names, _, _ := find(t, l, store.DueQuery{Holder: "h", RequestID: "q", TTL: time.Minute, MaxNew: 20, All: true})
	t.Logf("%d of 50 due of 20,000 granted in %v", len(names), time.Since(begun))
	if len(names) != 20 {
		t.Errorf("found %d", len(names))
	}
	if _, err := l.List(t.Context(), "", 1000); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What was read is counted by the server, whatever its plans were.
	exec(t, db, "SELECT pg_stat_force_next_flush()")
	rows, err := db.Query(t.Context(), "SELECT relname, seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relname IN ('lease', 'thread', 'due')")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var table string
		var scans, read int64
		if err := rows.Scan(&table, &scans, &read); err != nil {
			t.Fatal(err)
		}
		if read > 5_000 && !strings.HasPrefix(table, "due") {
			t.Errorf("%d rows of %s were read without an index, in %d scans", read, table, scans)
		}
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
}

// What was granted is there after the server was killed: a token that is given again is
// given to two.
func TestGrantsOutliveTheServer(t *testing.T) {
	c := pgtest.Start(t)
	db := database(t, c)
	makeAgents(t, db, 4)
	l := leases.New(db, nil)
	exec(t, db, "INSERT INTO outbox(agent_id, thread_id, thread, head) SELECT agent_id, 'inbox', 'main', 1 FROM agent")
	for i, a := range []store.DueQuery{
		{All: true},
		{Free: []string{"a000001"}},
		{All: true, Deliver: true},
		{Free: []string{"a000001"}, Deliver: true},
	} {
		a.Holder, a.Address, a.RequestID, a.TTL, a.MaxNew = "h", "at", fmt.Sprint("q", i), time.Minute, 1
		if !a.Deliver {
			push(t, db, fmt.Sprintf("a%06d", i))
		}
		_, found, _ := find(t, l, a)
		if len(found) != 1 || !found[0].Fresh {
			t.Fatalf("question %d: %+v", i, found)
		}
		c.Kill(t)
		c.Up(t)
		db.Reset()
		if got, live, err := l.Get(t.Context(), found[0].Lease.Resource); err != nil || !live || got.Token != found[0].Lease.Token || got.Holder != "h" {
			t.Errorf("question %d: %s was granted, and after the server was killed the lease is %+v: live %v, %v", i, found[0].Lease.Resource, got, live, err)
		}
	}
}
