package pool_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/consumer"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// Registries that start at once migrate once; a newer format is refused untouched.
func TestMigrate(t *testing.T) {
	url := pgtest.Database(t)
	migrate := func() (int, error) {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return 0, err
		}
		defer func() { _ = c.Close(t.Context()) }()
		return pool.Migrate(t.Context(), c)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if format, err := migrate(); err != nil || format < 1 {
				t.Errorf("format %d, %v", format, err)
			}
		})
	}
	wg.Wait()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	if _, err := c.Exec(t.Context(), "UPDATE format SET version = 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate(); !fault.Is(err, fault.FormatMismatch) {
		t.Errorf("a newer format: %v", err)
	}
}

// before answers a database of the format before one, with a thread of agent a.
func before(t *testing.T, format int, rows ...string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	run := func(sql string) {
		if _, err := c.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n < format; n++ {
		text, err := os.ReadFile(fmt.Sprintf("migrations/%03d.sql", n))
		if err != nil {
			t.Fatal(err)
		}
		run(string(text))
	}
	run(fmt.Sprintf("CREATE TABLE format (one INT PRIMARY KEY CHECK (one = 1), version INT NOT NULL); INSERT INTO format VALUES(1, %d)", format-1))
	run("INSERT INTO agent(agent_id) VALUES('a')")
	for _, sql := range rows {
		run(sql)
	}
	return c
}

// Lines of the log that stood in a row each go on to be read, in their order.
func TestLinesBefore(t *testing.T) {
	c := before(t, 6, `INSERT INTO agent_log(agent_id, at, level, text) VALUES('a', '2026-01-01', 'INFO', 'one, {two} "three"'), ('a', '2026-01-02', 'WARN', '')`)
	if _, err := pool.Migrate(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var now string
	if err := c.QueryRow(t.Context(), "SELECT string_agg(concat_ws(' ', cardinality(at), at[1]::date, level, text), ' / ' ORDER BY id) FROM agent_log").Scan(&now); err != nil {
		t.Fatal(err)
	}
	if want := `1 2026-01-01 {INFO} {"one, {two} \"three\""} / 1 2026-01-02 {WARN} {""}`; now != want {
		t.Errorf("%s", now)
	}
}

// What was shown of the consumers of a thread is shown after the migration, until our own
// acks the next: then it is where that came to.
func TestProgressBefore(t *testing.T) {
	c := before(t, 7, `INSERT INTO thread(agent_id, thread_id, uuid, head, acked) VALUES
			('a', 'inbox', 'u', 9, 5), ('a', 'threads/back', 'u', 9, 5), ('a', 'threads/none', 'u', 9, 5), ('a', 'threads/new', 'u', 9, 0), ('a', 'threads/early', 'u', 9, 0)`,
		`INSERT INTO progress(agent_id, thread_id, consumer, acked, updated_at) VALUES ('a', 'inbox', 'inbox', 5, 'acked'), ('a', 'inbox', 'outbound', 3, 'foreign'),
			('a', 'threads/back', 'outbound', 2, 'popped'), ('a', 'threads/back', 'inbox', 0, 'foreign'), ('a', 'threads/early', 'outbound', 7, 'popped')`)
	if _, err := pool.Migrate(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	shown := func() (all []string) {
		t.Helper()
		for _, id := range []string{"inbox", "threads/back", "threads/none", "threads/new", "threads/early"} {
			rows, err := c.Query(t.Context(), "SELECT concat_ws(' ', $2::text, x.consumer, x.acked, x.updated_at) FROM ("+consumer.Shown+") x ORDER BY x.consumer", "a", id)
			if err != nil {
				t.Fatal(err)
			}
			list, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, list...)
		}
		return all
	}
	foreign := []string{"inbox outbound 3 foreign", "threads/back inbox 0 foreign"}
	want := []string{"inbox inbox 5 acked", foreign[0], foreign[1], "threads/back outbound 2 popped", "threads/early outbound 7 popped"}
	if got := shown(); !slices.Equal(got, want) {
		t.Errorf("migrated: %q", got)
	}
	if _, err := c.Exec(t.Context(), "UPDATE thread SET acked = 6, acked_at = 'now'"); err != nil {
		t.Fatal(err)
	}
	want = []string{"inbox inbox 6 now", foreign[0], foreign[1], "threads/back outbound 6 now", "threads/none outbound 6 now", "threads/new outbound 6 now", "threads/early outbound 6 now"}
	if got := shown(); !slices.Equal(got, want) {
		t.Errorf("acked: %q", got)
	}
}
