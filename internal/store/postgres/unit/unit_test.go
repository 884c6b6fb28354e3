package unit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

var inbox = store.Inbox("a")

// open answers a pool over a new database with an agent "a" and its inbox.
func open(t *testing.T, o unit.Options) (*unit.Pool, *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
	url := pgtest.Database(t)
	c, err := pgx.Connect(ctx, url)
	if err == nil {
		_, err = pool.Migrate(ctx, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"INSERT INTO agent(agent_id) VALUES('a')",
		"INSERT INTO thread(agent_id, thread_id, uuid) VALUES('a', 'inbox', 'u')",
	} {
		if _, err := c.Exec(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	o.Pool = p
	return unit.New(o), p
}

// say is a step that appends a message, and then fails as told.
type say struct {
	text string
	fail error
}

func (say) Load(*unit.Tx) {}

func (s say) Decide(_ context.Context, tx *unit.Tx) error {
	tx.Insert(store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeMessage, Content: s.text})
	return s.fail
}

// A step appends in order under the lock of its thread, whoever else writes.
func TestDo(t *testing.T) {
	var commits []store.Commit
	p, db := open(t, unit.Options{OnCommit: func(c store.Commit) { commits = append(commits, c) }})
	for _, text := range []string{"one", "two"} {
		if err := p.Do(t.Context(), inbox, nil, say{text: text}); err != nil {
			t.Fatal(err)
		}
	}
	if len(commits) != 2 || commits[1].Events[0].ID != 2 {
		t.Errorf("commits %v", commits)
	}
	boom := errors.New("boom")
	err := p.Do(t.Context(), inbox, nil, say{"three", boom})
	if !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	var n, head int
	if err := db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM event), (SELECT head FROM thread)").Scan(&n, &head); err != nil || n != 2 || head != 2 {
		t.Errorf("%d events, head %d, %v: a step that failed has left something", n, head, err)
	}
	if err := p.Do(t.Context(), store.Inbox("b"), nil, say{text: "x"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no thread: %v", err)
	}
}

// The fence is the row of the lease, and the token a thread was sealed with.
func TestFence(t *testing.T) {
	p, db := open(t, unit.Options{})
	f := store.Fence{Resource: "agent/a", Token: 2}
	do := func() error { return p.Do(t.Context(), inbox, &f, say{text: "x"}) }
	if err := do(); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("without a lease: %v", err)
	}
	exec := func(q string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	exec("INSERT INTO lease VALUES('a', 'agent/a', 2, 'h', '', 'r', 1000, now() + interval '1 hour')")
	if err := do(); err != nil {
		t.Error(err)
	}
	exec("UPDATE lease SET token = 3")
	if err := do(); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("another holder: %v", err)
	}
	exec("UPDATE lease SET token = 2, expires_at = now() - interval '1 s'")
	if err := do(); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("expired: %v", err)
	}
	exec("UPDATE lease SET token = 1, expires_at = now() + interval '1 hour'")
	f.Token = 1
	if err := do(); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("below the seal: %v", err)
	}
}

// during is a step that does something else while it is under way.
type during struct {
	say
	do func()
}

func (d during) Decide(ctx context.Context, tx *unit.Tx) error {
	d.do()
	return d.say.Decide(ctx, tx)
}

// Who takes a lease over waits for the steps under it: until they have committed, their
// token may still be written.
func TestTakeoverWaits(t *testing.T) {
	p, db := open(t, unit.Options{})
	if _, err := db.Exec(t.Context(), "INSERT INTO lease VALUES('a', 'agent/a', 2, 'h', '', 'r', 1000, now() + interval '1 hour')"); err != nil {
		t.Fatal(err)
	}
	take := func() error {
		_, err := db.Exec(t.Context(), "SELECT 1 FROM lease WHERE agent_id = 'a' FOR UPDATE NOWAIT")
		return err
	}
	var locked *pgconn.PgError
	err := p.Do(t.Context(), inbox, &store.Fence{Resource: "agent/a", Token: 2}, during{say{text: "x"}, func() {
		if err := take(); !errors.As(err, &locked) || locked.Code != "55P03" {
			t.Errorf("a takeover during a step: %v, want that it waits", err)
		}
	}})
	if err := errors.Join(err, take()); err != nil {
		t.Error(err)
	}
}

// changed is a step that changes the thread's row.
type changed struct {
	say
	change func(*unit.Tx)
}

func (c changed) Decide(_ context.Context, tx *unit.Tx) error {
	c.change(tx)
	return nil
}

// An inbox is on the list of those with work as long as it has some and its agent
// shall work; a stop waits for the steps under the lease.
func TestDue(t *testing.T) {
	p, db := open(t, unit.Options{})
	set := func(change func(*unit.Tx)) {
		t.Helper()
		if err := p.Alone(t.Context(), inbox, "agent/a", changed{change: change}); err != nil {
			t.Fatal(err)
		}
	}
	due := func(want int) {
		t.Helper()
		var n int
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM due").Scan(&n); err != nil || n != want {
			t.Errorf("%d due, want %d, %v", n, want, err)
		}
	}
	if err := p.Do(t.Context(), inbox, nil, say{text: "one"}); err != nil {
		t.Fatal(err)
	}
	due(0)
	set(func(tx *unit.Tx) { tx.Desired = unit.Started })
	due(1)
	set(func(tx *unit.Tx) { tx.Acked = tx.Head })
	due(0)
	set(func(tx *unit.Tx) { tx.Acked = 0 })
	due(1)
	set(func(tx *unit.Tx) { tx.Desired = "stopped" })
	due(0)
}
