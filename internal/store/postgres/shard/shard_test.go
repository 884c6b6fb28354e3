package shard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/shard"
)

// The mapping is for good: these are where agents are today.
func TestIndex(t *testing.T) {
	for agent, want := range map[string]int{"a": 0, "b": 1, "alice": 2, "support-1": 3, "support-2": 4} {
		if got := [2]int{shard.Index(agent, 1), shard.Index(agent, 5)}; got != [2]int{0, want} {
			t.Errorf("%s is in %d of 1 and in %d of 5, want %d", agent, got[0], got[1], want)
		}
	}
	n := make([]int, 4)
	for i := range 4000 {
		n[shard.Index(fmt.Sprint("agent-", i), len(n))]++
	}
	for i, n := range n {
		if n < 900 || n > 1100 {
			t.Errorf("database %d has %d of 4000 agents", i, n)
		}
	}
}

// A question that nobody waits for any more costs no connection, when its answer comes.
func TestCanceled(t *testing.T) {
	s, err := shard.Open(t.Context(), []string{pgtest.Start(t, "fsync = off").Database(t) + "&pool_max_conns=1"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pid := func() (n int) {
		if err := s.All()[0].QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	was := pid()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	_, err = s.All()[0].Exec(ctx, "SELECT pg_sleep(0.02)")
	if is := pid(); is != was {
		t.Errorf("the connection is another one: %v", err)
	}
}

// A list that would send agents to another database than before is refused.
func TestPlaces(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	one, two, three := c.Database(t), c.Database(t), c.Database(t)
	for _, tt := range []struct {
		urls []string
		fail bool
	}{
		{nil, true},
		{[]string{one, two}, false},
		{[]string{one, two}, false},
		{[]string{two, one}, true},
		{[]string{one}, true},
		{[]string{one, two, three}, true},
		{[]string{three, three}, true},
		{[]string{"postgres://user:secret@[host"}, true},
	} {
		s, err := shard.Open(t.Context(), tt.urls)
		if tt.fail != fault.Is(err, fault.ConfigInvalid) || (!tt.fail && err != nil) {
			t.Errorf("%v: %v", tt.urls, err)
		}
		if err != nil {
			continue
		}
		for _, agent := range []string{"a", "b", "c"} {
			if s.Of(agent) != s.All()[shard.Index(agent, 2)] {
				t.Errorf("%s is elsewhere", agent)
			}
		}
		s.Close()
	}
}

// A rehearsal gives an empty database no place that a later list would have to keep, keeps
// to the place it has, and leaves its format to those who serve it.
func TestRehearse(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	one, two := c.Database(t), c.Database(t)
	rehearse := func(urls ...string) error {
		s, err := shard.Rehearse(t.Context(), urls)
		if err == nil {
			s.Close()
		}
		return err
	}
	if err := rehearse(one); err != nil {
		t.Fatal(err)
	}
	s, err := shard.Open(t.Context(), []string{two, one})
	if err != nil {
		t.Fatalf("after a rehearsal with another list: %v", err)
	}
	defer s.Close()
	if err := rehearse(one); !fault.Is(err, fault.ConfigInvalid) {
		t.Errorf("a list that it is not in: %v", err)
	}
	if err := rehearse(two, one); err != nil {
		t.Errorf("its list: %v", err)
	}
	if _, err := s.All()[1].Exec(t.Context(), "UPDATE format SET version = version - 1"); err != nil {
		t.Fatal(err)
	}
	if err := rehearse(two, one); !fault.Is(err, fault.FormatMismatch) {
		t.Errorf("an older format: %v", err)
	}
}

// What is acknowledged is on disk, and transactions are what they are thought to be,
// whatever the default of the server.
func TestSession(t *testing.T) {
	for value, want := range map[string]string{"off": "on", "local": "on", "remote_apply": "remote_apply"} {
		s, err := shard.Open(t.Context(), []string{pgtest.Start(t, "synchronous_commit = "+value, "default_transaction_isolation = 'serializable'").Database(t)})
		if err != nil {
			t.Fatal(err)
		}
		var got, plans, isolation string
		if err := s.Of("a").QueryRow(t.Context(), "SELECT current_setting('synchronous_commit'), current_setting('plan_cache_mode'), current_setting('transaction_isolation')").Scan(&got, &plans, &isolation); err != nil || got != want || plans != "force_generic_plan" || isolation != "read committed" {
			t.Errorf("with %s: %s, %s, %s, %v", value, got, plans, isolation, err)
		}
		s.Close()
	}
}
