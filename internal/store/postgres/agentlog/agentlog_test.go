package agentlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/agentlog"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// rows is how many rows hold the lines of an agent.
func rows(t *testing.T, s *pgxpool.Pool, agent string) (n int) {
	t.Helper()
	if err := s.QueryRow(t.Context(), "SELECT count(*) FROM agent_log WHERE agent_id = $1", agent).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Lines of many agents are kept in their order, the newest of each,
// and an agent that is not there costs nobody a line. What is written at once is one row.
func TestStory(t *testing.T) {
	c := pgtest.Shared(t)
	s, err := pool.Open(t.Context(), c.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, id := range []string{"alice", "bob", "carol"} {
		if err := agents.New(s).Create(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
	}
	b := agentlog.Patient(agentlog.New(s, func(err error) { t.Error(err) }))
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i := range 9 {
		for _, id := range []string{"alice", "nobody", "bob", "carol"} {
			b.Say(id, store.LogLine{At: now.Add(time.Duration(i) * time.Second), Level: fmt.Sprint("L", i), Text: fmt.Sprint(id, " \x00 ", i)})
		}
		if i%5 == 4 {
			b.Flush()
		}
	}
	b.Flush()
	for _, id := range []string{"alice", "bob", "carol"} {
		for limit := range 12 { // within the newest row, at its edge, in the one before, more than there is
			got, err := b.Read(t.Context(), id, limit)
			if err != nil || len(got) != min(limit, 9) {
				t.Fatalf("%s: %+v, %v", id, got, err)
			}
			for i, l := range got {
				n := 9 - len(got) + i
				if l.Text != fmt.Sprint(id, " \x00 ", n) || l.Level != fmt.Sprint("L", n) || !l.At.Equal(now.Add(time.Duration(n)*time.Second)) {
					t.Errorf("%s, %d of %d: %+v", id, i, limit, l)
				}
			}
		}
		if n := rows(t, s, id); n != 2 {
			t.Errorf("%d rows of %s", n, id)
		}
	}
	if got, err := b.Read(t.Context(), "nobody", 3); err != nil || len(got) != 0 {
		t.Errorf("nobody: %v, %v", got, err)
	}
	for i := range agentlog.MaxLines * 3 / 2 {
		b.Say("alice", store.LogLine{At: now, Level: "INFO", Text: fmt.Sprint(i)})
		if i%1500 == 1499 {
			b.Flush()
		}
	}
	b.Flush()
	got, err := b.Read(t.Context(), "alice", 100_000)
	if err != nil || len(got) < agentlog.MaxLines || len(got) > agentlog.MaxLines*6/5 {
		t.Fatalf("%d lines stay, %v", len(got), err)
	}
	for i, l := range got {
		if l.Text != fmt.Sprint(agentlog.MaxLines*3/2-len(got)+i) {
			t.Fatalf("line %d of %d is %q", i, len(got), l.Text)
		}
	}
	if n := rows(t, s, "alice"); n != len(got)/500 {
		t.Errorf("%d rows of %d lines", n, len(got))
	}
	if got, err := b.Read(t.Context(), "alice", 700); err != nil || len(got) != 700 || got[0].Text != "14300" || got[699].Text != "14999" {
		t.Errorf("%d of the newest 700 lines, %v", len(got), err)
	}
	if got, err := b.Read(t.Context(), "bob", 100); err != nil || len(got) != 9 {
		t.Errorf("%d lines of bob, %v", len(got), err)
	}
}

// An agent that says a line now and then keeps the newest MaxLines, too: by lines, not by
// rows, and of rows of one line, as an older format had them, some.
func TestTrim(t *testing.T) {
	s, err := pool.Open(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := agents.New(s).Create(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Exec(t.Context(), "INSERT INTO agent_log(agent_id, at, level, text) SELECT 'a', ARRAY[now()], '{INFO}', ARRAY['old ' || i] FROM generate_series(1, $1::int) i", agentlog.MaxLines); err != nil {
		t.Fatal(err)
	}
	b := agentlog.Patient(agentlog.New(s, func(err error) { t.Error(err) }))
	for i := range agentlog.MaxLines / 10 {
		b.Say("a", store.LogLine{At: time.Now(), Level: "INFO", Text: fmt.Sprint(i)})
		if i%100 == 99 {
			b.Flush()
		}
	}
	got, err := b.Read(t.Context(), "a", 2*agentlog.MaxLines)
	if err != nil || len(got) != agentlog.MaxLines || got[0].Text != "old 1001" || got[agentlog.MaxLines-1].Text != "999" || rows(t, s, "a") != agentlog.MaxLines*9/10+10 {
		t.Errorf("%d lines in %d rows, %v", len(got), rows(t, s, "a"), err)
	}
}
