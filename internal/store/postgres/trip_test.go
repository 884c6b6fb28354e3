package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/journal"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// trips counts what goes to the server; one goroutine uses it.
type trips int

func (n *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	*n++
	return ctx
}

func (n *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (n *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (n *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	*n++
	return ctx
}

func (n *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A push makes two trips, also with an origin and by a state of the bindings; a repeat one more,
// to read what the first did. Whatever only reads makes one, and so does a batch in the middle of
// its term.
func TestTripsOfOrigins(t *testing.T) {
	url := cluster(t, "fsync = off").Database(t)
	e := open(t, Options{DSN: url, Live: anyLease})
	t.Cleanup(func() { _ = e.Close() })
	if _, err := e.Counts().PutRevision(t.Context(), 0, []byte("1"), 9); err != nil {
		t.Fatal(err)
	}
	conf, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	var n trips
	conf.ConnConfig.Tracer = &n
	db, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	p, inbox, f := unit.New(unit.Options{Pool: db, Live: anyLease}), store.Inbox("a"), store.Fence{Resource: "agent/a", Token: 1}
	count := func(want trips, what string, do func() error) {
		t.Helper()
		n = 0
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n != want {
			t.Errorf("%s: %d trips, want %d", what, n, want)
		}
	}
	push := func(key string, rev int64, o *store.Origin) func() error {
		return func() error {
			ev := message
			ev.Origin = o
			s := &pushStep{events: []store.NewEvent{ev, ev}, o: store.AppendOptions{Key: key, Revision: rev}, inbox: true}
			return p.Do(t.Context(), inbox, nil, s)
		}
	}
	o := &store.Origin{Thread: "threads/x", Key: "agent:a:main", Rev: 1}
	count(2, "a push", push("1", 0, nil))
	count(2, "a push with an origin", push("2", 1, o))
	count(3, "a repeat", push("2", 1, o))
	if _, err := e.Counts().PutRevision(t.Context(), 1, []byte("2"), 9); err != nil {
		t.Fatal(err)
	}
	count(2, "a push that is refused", func() error {
		if err := push("3", 1, o)(); !errors.Is(err, store.ErrRevision) {
			return fmt.Errorf("answered %w", err)
		}
		return nil
	})
	batch := store.OpenBatch{Limit: 9, Mode: "m", Route: func(thread.Event, string) (string, error) { return "threads/y", nil }}
	if err := p.Do(t.Context(), inbox, &f, journal.Open(batch, nil)); err != nil {
		t.Fatal(err)
	}
	count(1, "a batch", func() error {
		s := journal.Open(batch, nil)
		done, err := p.Peek(t.Context(), inbox, f, s)
		if !done || len(s.Out.Events) != 4 || s.Out.Events[3].Thread != "threads/x" {
			t.Errorf("batch: %v, %+v", done, s.Out)
		}
		return err
	})
	for what, s := range map[string]unit.Step{
		"what a push did": &pushedStep{key: "2"}, "an origin": journal.Origin(3), "a list of sessions": journal.Sessions(store.ListSessions{Limit: 9}),
		"a turn": journal.Turn(store.TurnQuery{InboxID: 3}), "turns": journal.Turns(store.ListTurns{Limit: 9}),
	} {
		count(1, what, func() error { return p.View(t.Context(), inbox, s) })
	}
}
