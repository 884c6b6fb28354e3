package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	agentrows "github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// A snapshot stands whole or not at all, only the holder of the lease replaces it and
// only one it has seen, and pieces that nobody names are removed.
func TestWorkdirs(t *testing.T) {
	c := pgtest.Shared(t)
	s, err := pool.Open(t.Context(), c.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx, d := t.Context(), &workdirs{s}
	if err := agentrows.New(s).Create(ctx, "alice", nil); err != nil {
		t.Fatal(err)
	}
	f := store.Fence{Resource: lease.AgentResource("alice"), Token: 7}
	hold := func(token uint64, left time.Duration) {
		if _, err := s.Exec(ctx, "UPDATE lease SET token = $2, released = false, expires_at = clock_timestamp() + $3 * interval '1 ms' WHERE agent_id = 'alice' AND resource = $1", f.Resource, int64(token), left.Milliseconds()); err != nil {
			t.Fatal(err)
		}
	}
	put := func(want error, base, hash string, pieces ...string) {
		t.Helper()
		if err := d.PutWorkdir(ctx, "alice", f, store.Snapshot{Base: base, Hash: hash, Manifest: []byte("m " + hash), Pieces: pieces}); !errors.Is(err, want) {
			t.Errorf("%s after %q: %v, want %v", hash, base, err, want)
		}
	}
	holds := func(hash string, pieces ...string) {
		t.Helper()
		got, manifest, err := d.Workdir(ctx, "alice")
		if err != nil || got != hash || hash != "" && string(manifest) != "m "+hash {
			t.Errorf("%q %q %v, want %q", got, manifest, err, hash)
		}
		n := 0
		if err := d.Pieces(ctx, "alice", []string{"a", "b", "c", "left"}, func(h string, b []byte) error {
			if n++; string(b) != "data "+h {
				t.Errorf("%s: %q", h, b)
			}
			return nil
		}); err != nil || n != len(pieces) {
			t.Errorf("%d pieces, want %v, %v", n, pieces, err)
		}
	}
	pieces := func(names ...string) {
		t.Helper()
		m := map[string][]byte{}
		for _, n := range names {
			m[n] = []byte("data " + n)
		}
		for range 2 {
			if err := d.PutPieces(ctx, "alice", m); err != nil {
				t.Error(err)
			}
		}
	}
	holds("")
	put(store.ErrLeaseLost, "", "one") // nobody has it
	hold(7, time.Hour)
	put(store.ErrNoPiece, "", "one", "a", "b")
	pieces("a", "b", "left")
	put(nil, "", "one", "a", "b")
	holds("one", "a", "b")
	put(nil, "", "one", "a", "b") // the answer was lost
	put(store.ErrMoved, "", "two", "a")
	pieces("c")
	hold(7, -time.Second)
	put(store.ErrLeaseLost, "one", "two", "a", "c") // too late
	hold(8, time.Hour)
	put(store.ErrLeaseLost, "one", "two", "a", "c") // another has it
	holds("one", "a", "b", "c")
	f.Token = 8
	put(nil, "one", "two", "a", "c")
	holds("two", "a", "c")
	put(nil, "two", "three")
	holds("three")
	if err := d.PutPieces(ctx, "nobody", map[string][]byte{"a": nil}); err == nil {
		t.Error("a piece of nobody was taken")
	}
	if n := fmt.Sprint(d.Workdir(ctx, "nobody")); n != "[] <nil>" {
		t.Error(n)
	}
}
