package transfer_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/transfer"
)

// An agent of a database that is started, and whose lease is held, is laid into a home
// and stays as it was; out of that home it comes back when its name is free, as it was,
// started, with its work due, and above every token that its name ever had there.
func TestLayAndPut(t *testing.T) {
	w, ctx := movedAway(t), t.Context()
	_, err := w.pg.SetStarted(ctx, "alice", true, "h")
	ok(t, err)
	set := w.pg.Pool()
	table := leases.New(set, nil)
	l, err := table.Acquire(ctx, lease.AcquireRequest{Resource: lease.AgentResource("alice"), Holder: "runner", RequestID: "q", TTL: time.Minute})
	ok(t, err)
	was := answers(t, w.pg, "alice")

	other := &world{pg: w.pg}
	other.home, err = agentdir.OpenHome(filepath.Join(t.TempDir(), "home"))
	ok(t, err)
	defer func() { ok(t, other.home.Close()) }()
	tokens, err := transfer.Of(w.pg).Lay(ctx, other.home, "alice", true)
	ok(t, err)
	if tokens[l.Resource] != l.Token {
		t.Errorf("tokens %v, granted %d", tokens, l.Token)
	}
	if _, err := transfer.Of(w.pg).Lay(ctx, other.home, "nobody", true); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("nobody: %v", err)
	}
	other.lite(t, func(e store.Engine) {
		if is := answers(t, e, "alice"); is != was {
			t.Errorf("laid:\n %s\nwas\n %s", is, was)
		}
	})
	if is := answers(t, w.pg, "alice"); is != was {
		t.Errorf("after it was laid:\n %s\nwas\n %s", is, was)
	}
	put := func() error {
		_, err := transfer.Of(w.pg).Put(ctx, other.home, []string{"alice"})
		return err
	}
	if err := put(); !fault.Is(err, fault.AgentExists) {
		t.Errorf("over one that is there: %v", err)
	}

	// Its name gets some tokens more than the copy knows, and is free again.
	ok(t, table.Release(ctx, l.Resource, l.Token))
	for range 2 {
		l, err = table.Acquire(ctx, lease.AcquireRequest{Resource: l.Resource, Holder: "runner", RequestID: time.Now().String(), TTL: time.Minute})
		ok(t, err)
		ok(t, table.Release(ctx, l.Resource, l.Token))
	}
	ok(t, agents.New(set).Remove(ctx, "alice"))
	ok(t, put())
	if is := answers(t, w.pg, "alice"); is != was {
		t.Errorf("put:\n %s\nwas\n %s", is, was)
	}
	due := 0
	ok(t, set.QueryRow(ctx, "SELECT count(*) FROM due").Scan(&due))
	again, err := table.Acquire(ctx, lease.AcquireRequest{Resource: l.Resource, Holder: "runner", RequestID: "r", TTL: time.Minute})
	if err != nil || again.Token <= l.Token || due != 1 {
		t.Errorf("token %d after %d, %v; %d due", again.Token, l.Token, err, due)
	}

	// So does one that is moved to where its name was.
	ok(t, table.Release(ctx, again.Resource, again.Token))
	ok(t, agents.New(set).Remove(ctx, "alice"))
	other.stop(t, "alice")
	if r, err := other.move("alice", true).ToDatabase(ctx); err != nil || !r.Moved {
		t.Errorf("moved where one was removed: %+v, %v", r, err)
	}
}
