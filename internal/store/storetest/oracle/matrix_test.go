package oracle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/storetest/oracle"
)

func anyLease(string, uint64) error { return nil }

// clock rises with each reading, so that what was written before is older.
func clock() func() time.Time {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

// engine is one of those that are compared with the model.
type engine struct {
	name string
	made func(t *testing.T, agent string) *oracle.Side // a new agent that has an empty inbox
}

func made(t *testing.T, e oracle.Engine, agent string) *oracle.Side {
	t.Helper()
	if _, err := e.Ensure(t.Context(), store.Inbox(agent), ""); err != nil {
		t.Fatal(err)
	}
	return oracle.NewSide(e, agent)
}

// group is engines and the model in the same state.
type group struct {
	names []string
	got   []*oracle.Side
	want  *oracle.Side
}

// in makes all come into a state; false when one differs on the way.
func in(t *testing.T, engines []engine, agent string, state oracle.State) (group, bool) {
	t.Helper()
	g := group{want: made(t, oracle.New(agent, clock()), agent)}
	g.want.Subject = state.Subject
	for _, e := range engines {
		s := e.made(t, agent)
		s.Subject = state.Subject
		g.names, g.got = append(g.names, e.name), append(g.got, s)
	}
	for _, c := range state.Calls {
		if !g.same(t, c) {
			return g, false
		}
	}
	return g, true
}

// same makes a call to all and compares the answers.
func (g group) same(t *testing.T, c oracle.Call) bool {
	t.Helper()
	same, want := true, g.want.Answer(t.Context(), c)
	for i, s := range g.got {
		if got := s.Answer(t.Context(), c); got != want {
			same = false
			t.Errorf("%s of %s:%s", c.Name, g.names[i], differ(got, want))
		}
	}
	return same
}

// account compares the accounts and answers that of the model.
func (g group) account(t *testing.T) (string, bool) {
	t.Helper()
	same, want := true, g.want.Account(t.Context())
	for i, s := range g.got {
		if got := s.Account(t.Context()); got != want {
			same = false
			t.Errorf("%s:%s", g.names[i], lines(got, want))
		}
	}
	return want, same
}

// matrix makes inputs in each state, every nth of them, and compares the answers and the
// accounts of engines with those of the model. A pair that has changed nothing leaves its
// state to the next input. No pair is left out as impossible: a call that finds nothing to
// do answers so.
func matrix(t *testing.T, nth int, engines ...engine) {
	var pairs, agents atomic.Int64
	name := func() string { return fmt.Sprintf("agent%06d", agents.Add(1)) }
	of, states, begun := 0, 0, time.Now()
	t.Run("of", func(t *testing.T) {
		for _, kind := range oracle.Kinds() {
			for _, state := range kind.States {
				first := states % nth
				states, of = states+1, of+len(kind.Inputs)
				t.Run(kind.Name+" "+state.Name, func(t *testing.T) {
					t.Parallel()
					g, ok := in(t, engines, name(), state)
					before, same := g.account(t)
					if !ok || !same {
						t.Fatal("another state")
					}
					fresh := true
					for i := first; i < len(kind.Inputs); i += nth {
						if !fresh {
							g, _ = in(t, engines, name(), state)
						}
						pairs.Add(1)
						ok := g.same(t, kind.Inputs[i])
						after, same := g.account(t)
						if !ok || !same {
							t.Errorf("after %q in %q", kind.Inputs[i].Name, state.Name)
						}
						fresh = same && after == before
					}
				})
			}
		}
	})
	names := ""
	for _, e := range engines {
		names += "," + e.name
	}
	fmt.Printf("state-matrix engines=%s pairs=%d of=%d states=%d duration=%v\n", names[1:], pairs.Load(), of, states, time.Since(begun).Round(time.Millisecond))
}

// lines are those that differ, from where they do.
func lines(got, want string) string {
	out, w := "", strings.Split(want, "\n")
	for i, g := range strings.Split(got, "\n") {
		if i >= len(w) || g != w[i] {
			out += differ(g, w[min(i, len(w)-1)])
		}
	}
	return out
}

// differ shows two lines without what they begin and end with in common.
func differ(got, want string) string {
	from, n := 0, min(len(got), len(want))
	for from < n && got[from] == want[from] {
		from++
	}
	from = max(0, strings.LastIndexAny(got[:from], ",:{[ "))
	to := 0
	for to < n-from && got[len(got)-1-to] == want[len(want)-1-to] {
		to++
	}
	what, _, _ := strings.Cut(got, ":")
	return fmt.Sprintf("\n %s ...\n  engine %s\n  oracle %s", what, got[from:len(got)-to], want[from:len(want)-to])
}

// lite is SQLite, where there is one in memory: a power cut is not what this is about.
func lite(t *testing.T) engine {
	t.Helper()
	root, err := os.MkdirTemp("/dev/shm", "matrix")
	if err != nil {
		root = t.TempDir()
	}
	e := sqlite.New(sqlite.Options{Live: anyLease, Path: func(r store.Ref) (string, error) { return filepath.Join(root, r.Agent, r.Thread), nil }})
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), os.RemoveAll(root)); err != nil {
			t.Error(err)
		}
	})
	return engine{"sqlite", func(t *testing.T, agent string) *oracle.Side { return made(t, e, agent) }}
}

// TestMatrixSQLite is the part of the matrix that needs no server: every fourth pair.
func TestMatrixSQLite(t *testing.T) { matrix(t, 4, lite(t)) }

// TestMatrix is every pair of a state and an input, on both engines.
func TestMatrix(t *testing.T) {
	url := pgtest.Database(t)
	e, err := postgres.New(t.Context(), postgres.Options{DSN: url, Live: anyLease})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	matrix(t, 1, lite(t), engine{"postgres", func(t *testing.T, agent string) *oracle.Side {
		if _, err := pool.Exec(t.Context(), "INSERT INTO agent(agent_id) VALUES($1)", agent); err != nil {
			t.Fatal(err)
		}
		return made(t, e, agent)
	}})
}
