package agents_test

import (
	"errors"
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/shard"
)

// A file of no agent is told as that, and a server that has gone as an input/output
// error, which a caller repeats: at a connection that stood, and at a new one.
func TestProblems(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	s, err := shard.Open(t.Context(), []string{c.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d := agents.New(s)
	for _, expect := range []string{"", agentdir.NoFile, "other"} {
		if _, err := d.Write(t.Context(), "nobody", "USAGE.md", []byte("x"), expect); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("expect %q: %v, want not found", expect, err)
		}
	}
	c.Kill(t)
	for _, which := range []string{"standing", "new"} {
		if err := d.Has(t.Context(), "nobody"); !errors.Is(err, store.ErrIO) {
			t.Errorf("%s connection: %v, want an input/output error", which, err)
		}
	}
}
