package pool_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// open opens a database until the end of the test.
func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pool.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A question that nobody waits for any more costs no connection, when its answer comes.
func TestCanceled(t *testing.T) {
	p := open(t, pgtest.Database(t)+"&pool_max_conns=1")
	pid := func() (n int) {
		if err := p.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	was := pid()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	_, err := p.Exec(ctx, "SELECT pg_sleep(0.02)")
	if is := pid(); is != was {
		t.Errorf("the connection is another one: %v", err)
	}
}

// A database that was one of several is refused, until what the refusal says was done; so
// is one in which a move between databases has left something. A URL that cannot be read
// is refused without its password.
func TestOneOfSeveral(t *testing.T) {
	url := pgtest.Database(t)
	db := open(t, url)
	run := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ rows, wants string }{
		{"", ""},
		{"UPDATE shard SET count = 2", "number 1 of 2"},
		{"UPDATE shard SET index = 1, count = 3", "number 2 of 3"},
		{"INSERT INTO moved(agent_id, shard, move) VALUES('a', 1, 'm')", "1 agents were moved"},
		{"INSERT INTO agent(agent_id) VALUES('b'); INSERT INTO arriving(agent_id, move) VALUES('b', 'm')", "1 agents were moved"},
	} {
		run("TRUNCATE shard, moved, arriving, agent CASCADE; INSERT INTO shard(one, index, count) VALUES(1, 0, 1); " + c.rows)
		for _, try := range []func(context.Context, string) (*pgxpool.Pool, error){pool.Open, pool.Rehearse} {
			p, err := try(t.Context(), url)
			if err == nil {
				p.Close()
			}
			if c.wants == "" && err == nil {
				continue
			}
			if f := fault.From(err); c.wants == "" || f.Reason != fault.ConfigInvalid || !strings.Contains(f.What, c.wants) || f.Fix != reference.Gather {
				t.Errorf("%q: %v, want %q", c.rows, err, c.wants)
			}
		}
	}
	run("TRUNCATE arriving; TRUNCATE shard, moved") // the latter is what the refusal says
	open(t, url)
	if _, err := pool.Open(t.Context(), "postgres://user:secret@[host"); !fault.Is(err, fault.ConfigInvalid) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a URL that cannot be read: %v", err)
	}
}

// A rehearsal leaves the format of a database to those who serve it.
func TestRehearse(t *testing.T) {
	url := pgtest.Database(t)
	p, err := pool.Rehearse(t.Context(), url) // it is empty
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Exec(t.Context(), "UPDATE format SET version = version - 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Rehearse(t.Context(), url); !fault.Is(err, fault.FormatMismatch) {
		t.Errorf("an older format: %v", err)
	}
}

// What is acknowledged is on disk, and transactions are what they are thought to be,
// whatever the default of the server.
func TestSession(t *testing.T) {
	for value, want := range map[string]string{"off": "on", "local": "on", "remote_apply": "remote_apply"} {
		p := open(t, pgtest.Start(t, "synchronous_commit = "+value, "default_transaction_isolation = 'serializable'").Database(t))
		var got, plans, isolation string
		if err := p.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit'), current_setting('plan_cache_mode'), current_setting('transaction_isolation')").Scan(&got, &plans, &isolation); err != nil || got != want || plans != "force_generic_plan" || isolation != "read committed" {
			t.Errorf("with %s: %s, %s, %s, %v", value, got, plans, isolation, err)
		}
	}
}
