package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// registries are two engines on one database, as two registries have them, and a connection that
// is neither's.
func registries(t *testing.T) (one, two *Engine, outside *pgx.Conn) {
	t.Helper()
	url := cluster(t, "fsync = off").Database(t)
	one, two = open(t, Options{DSN: url, Live: anyLease}), open(t, Options{DSN: url, Live: anyLease})
	outside, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(outside.Close(context.WithoutCancel(t.Context())), one.Close(), two.Close()); err != nil {
			t.Error(err)
		}
	})
	return one, two, outside
}

// routed pushes a message that was resolved by a state of the bindings.
func routed(ctx context.Context, e *Engine, key string, rev int64) (store.Appended, error) {
	o := &store.Origin{Thread: fmt.Sprint("threads/r", rev), Key: "agent:a:main", Rev: rev}
	return e.Append(ctx, store.Inbox("a"), []store.NewEvent{{Source: "x", Type: thread.TypeMessage, Content: key, Origin: o}}, store.AppendOptions{Key: key, Revision: rev})
}

func run(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// await asks the server until a transaction waits for a lock of a kind.
func await(t *testing.T, c *pgx.Conn, kind string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		var waits bool
		if err := c.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = $1 AND NOT granted)", kind).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no transaction waits for a lock of kind %s", kind)
		}
	}
}

// S4-10: a change of the bindings waits for a push that was resolved before it, and has seen
// that it may commit.
func TestPushBeforeChange(t *testing.T) {
	one, two, outside := registries(t)
	ctx := t.Context()
	if _, err := two.Counts().PutRevision(ctx, 0, []byte("1"), 9); err != nil {
		t.Fatal(err)
	}
	// The push comes to its second trip, and waits there for a row that is not committed.
	run(t, outside, "BEGIN")
	run(t, outside, "INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES('a', 'inbox', 'push:k', 99, 0)")
	var g sync.WaitGroup
	g.Go(func() {
		if out, err := routed(ctx, one, "k", 1); err != nil || out.IDs[0] != 1 {
			t.Errorf("push: %+v, %v", out, err)
		}
	})
	await(t, outside, "transactionid")
	g.Go(func() {
		if r, err := two.Counts().PutRevision(ctx, 1, []byte("2"), 9); err != nil || r.Rev != 2 {
			t.Errorf("change: %+v, %v", r, err)
		}
		if o, err := two.Origin(ctx, "a", 1); err != nil || o == nil || o.Rev != 1 {
			t.Errorf("the change is visible before the push that it waited for: %+v, %v", o, err)
		}
	})
	await(t, outside, "advisory")
	run(t, outside, "ROLLBACK")
	g.Wait()

	if _, err := routed(ctx, one, "late", 1); !errors.Is(err, store.ErrRevision) {
		t.Errorf("a push by the earlier state: %v", err)
	}
	if _, found, err := one.Pushed(ctx, store.Inbox("a"), "late"); found || err != nil {
		t.Errorf("a push that was refused is stored: %v", err)
	}
	// A repeat after a lost answer is answered, whatever the bindings are now.
	if out, err := routed(ctx, two, "k", 1); err != nil || !out.Duplicate || out.Origins[0].Rev != 1 {
		t.Errorf("repeated: %+v, %v", out, err)
	}
	if out, err := routed(ctx, two, "late", 2); err != nil || out.Duplicate || out.IDs[0] != 2 {
		t.Errorf("by the newest state: %+v, %v", out, err)
	}
}

// S4-10: a push that comes while a change of the bindings commits is refused, although its
// transaction began before it was visible.
func TestPushDuringChange(t *testing.T) {
	one, two, outside := registries(t)
	ctx := t.Context()
	if _, err := two.Counts().PutRevision(ctx, 0, []byte("1"), 9); err != nil {
		t.Fatal(err)
	}
	// The change has its lock, and waits for a row that is not committed.
	run(t, outside, "BEGIN")
	run(t, outside, "INSERT INTO binding_rev(rev, at, body) VALUES(2, 0, '')")
	var g sync.WaitGroup
	g.Go(func() {
		if r, err := two.Counts().PutRevision(ctx, 1, []byte("2"), 9); err != nil || r.Rev != 2 {
			t.Errorf("change: %+v, %v", r, err)
		}
	})
	await(t, outside, "transactionid")
	g.Go(func() {
		if out, err := routed(ctx, one, "k", 1); !errors.Is(err, store.ErrRevision) {
			t.Errorf("push: %+v, %v", out, err)
		}
	})
	await(t, outside, "advisory")
	// A push that no binding resolved waits for nothing.
	if _, err := one.Append(ctx, store.Inbox("b"), []store.NewEvent{message}, store.AppendOptions{}); err != nil {
		t.Error(err)
	}
	run(t, outside, "ROLLBACK")
	g.Wait()
	if s, err := one.State(ctx, "a"); err != nil || s.Head != 0 {
		t.Errorf("head %d, %v", s.Head, err)
	}
}

// S4-10: while several push and the bindings change all the time, no message is committed
// by a state of them after the next is visible.
func TestPushesAndChanges(t *testing.T) {
	one, two, _ := registries(t)
	inbox, counts := store.Inbox("a"), two.Counts()
	r, err := counts.PutRevision(t.Context(), 0, []byte("0"), 4)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	var used sync.Map // the states by which a message was committed
	enough := func() bool {
		n := 0
		used.Range(func(any, any) bool { n++; return n < 10 })
		return n == 10
	}
	for w := range 4 {
		engine := []*Engine{one, two}[w%2]
		writers.Go(func() {
			rev := int64(1)
			for n := 0; ctx.Err() == nil; {
				_, err := routed(t.Context(), engine, fmt.Sprint("w", w, "n", n), rev)
				switch {
				case err == nil:
					n++
					used.Store(rev, true)
				case errors.Is(err, store.ErrRevision):
					list, err := engine.Counts().Revisions(t.Context(), 1)
					if err != nil {
						t.Error(err)
						return
					}
					rev = list[0].Rev
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	heads := map[int64]int64{}                            // of the inbox, when a state was visible
	for n := 0; n < 100 || n < 20_000 && !enough(); n++ { // a busy machine commits little between two changes
		if r, err = counts.PutRevision(t.Context(), r.Rev, []byte(fmt.Sprint(r.Rev)), 4); err != nil {
			t.Fatal(err)
		}
		s, err := two.State(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		heads[r.Rev] = s.Head
	}
	stop()
	writers.Wait()
	page, err := one.Read(t.Context(), inbox, store.Query{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	late, states := 0, map[int64]bool{}
	for _, e := range page.Events {
		o, err := one.Origin(t.Context(), "a", e.ID)
		if err != nil || o == nil {
			t.Fatalf("event %d: %+v, %v", e.ID, o, err)
		}
		if next, known := heads[o.Rev+1]; known && e.ID > next {
			late++
		}
		states[o.Rev] = true
	}
	if late > 0 || len(states) < 10 {
		t.Errorf("%d of %d messages by %d states were committed after the next was visible", late, len(page.Events), len(states))
	}
	t.Logf("%d messages by %d states", len(page.Events), len(states))
}
