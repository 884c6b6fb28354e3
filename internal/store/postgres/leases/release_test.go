package leases_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
)

// turns are the rows that a release may change.
func turns(t *testing.T, db *pgxpool.Pool) (out []machine.Turn) {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT key, state, fate, crash_attempts, error_attempts, not_before, waiting_since, leader, token FROM turn WHERE agent_id = 'a' ORDER BY key")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r machine.Turn
		if err := rows.Scan(&r.Key, &r.State, &r.Fate, &r.CrashAttempts, &r.ErrorAttempts, &r.NotBefore, &r.WaitingSince, &r.Leader, &r.Token); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// A clean release is one statement over the rows of a lease. Row by row it does what
// machine.Release does to the turns that were begun under the token, and nothing to
// others; the release of a term that is over does nothing.
func TestReleaseIsThatOfTheStateMachine(t *testing.T) {
	db := database(t, pgtest.Shared(t))
	for _, q := range []string{
		"INSERT INTO agent(agent_id) VALUES('a')",
		"INSERT INTO thread(agent_id, thread_id, uuid, desired) VALUES('a', 'inbox', 'u', 'started'), ('a', 'threads/x', 'v', '')",
	} {
		exec(t, db, q)
	}
	table := leases.New(db, nil)
	const resource = "agent/a"
	for _, c := range []struct {
		name string
		live bool
	}{{"live", true}, {"over", false}} {
		got, err := table.Acquire(t.Context(), lease.AcquireRequest{Resource: resource, Holder: "h", RequestID: c.name, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		exec(t, db, "DELETE FROM turn")
		n := 0
		for _, token := range []uint64{got.Token, got.Token - 1} {
			for _, state := range []string{store.TurnClaimed, store.TurnWaiting, store.TurnDone} {
				for _, crashes := range []int{0, 1, store.MaxCrashAttempts} {
					n++
					exec(t, db, `INSERT INTO turn(agent_id, thread_id, key, inbox_id, state, crash_attempts, error_attempts, not_before, waiting_since, token)
						VALUES('a', 'threads/x', $1, $2, $3, $4, 2, 7, 8, $5)`, fmt.Sprintf("k%02d", n), n, state, crashes, int64(token))
				}
			}
		}
		before := turns(t, db)
		if !c.live {
			exec(t, db, "UPDATE lease SET expires_at = clock_timestamp() - interval '1 s' WHERE resource = $1", resource)
		}
		if err := table.Release(t.Context(), resource, got.Token); err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(before)
		for i := range want {
			if c.live && want[i].Token == got.Token {
				one := machine.Thread{Turns: want[i : i+1 : i+1]}
				machine.Release(&one)
				want[i].Change = machine.Unchanged
			}
		}
		if after := turns(t, db); !slices.Equal(after, want) {
			t.Errorf("%s: rows\n%+v\nwant\n%+v", c.name, after, want)
		}
		if c.live == slices.Equal(before, want) {
			t.Errorf("%s: the state machine changes the rows: %v", c.name, !c.live)
		}
	}
}
