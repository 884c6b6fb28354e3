package consumer_test

import (
	"testing"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/thread"
)

// Our own acks write no row of progress, and one that a pop from outside has left is
// passed over by the next of them. What is shown is in the contract (store/storetest).
func TestAckWritesNoRow(t *testing.T) {
	ctx := t.Context()
	e, err := postgres.New(ctx, postgres.Options{DSN: pgtest.Database(t), Live: func(string, uint64) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := agents.New(e.Pool()).Create(ctx, "a", nil); err != nil {
		t.Fatal(err)
	}
	var list []store.NewEvent
	for range 4 {
		list = append(list, store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: "x"})
	}
	if _, err := e.Append(ctx, store.Inbox("a"), list, store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{thread.Inbox, thread.Outbound} {
		if err := e.Subscribe(ctx, store.Inbox("a"), store.Subscription{Consumer: name}); err != nil {
			t.Fatal(err)
		}
	}
	settle := func(id int64) {
		t.Helper()
		f := store.Fence{Resource: lease.AgentResource("a"), Token: 1}
		if acked, err := e.Settle(ctx, "a", f, store.Settlement{InboxID: id, Key: "k", Fate: store.FateSilent}); err != nil || acked != id {
			t.Fatalf("acked %d, %v", acked, err)
		}
	}
	check := func(rows int, shown ...int64) {
		t.Helper()
		var n int
		if err := e.Pool().QueryRow(ctx, "SELECT count(*) FROM progress").Scan(&n); err != nil || n != rows {
			t.Errorf("%d rows of progress, not %d, %v", n, rows, err)
		}
		subs, err := e.Subscriptions(ctx, store.Inbox("a"))
		if err != nil || len(subs) != len(shown) {
			t.Fatalf("%+v, %v", subs, err)
		}
		for i, s := range subs {
			if s.Acked != shown[i] || (s.UpdatedAt == "") != (shown[i] == 0) {
				t.Errorf("shown %+v, not %v", s, shown)
			}
		}
	}
	settle(1)
	settle(2)
	check(0, 2, 0)
	for _, name := range []string{thread.Inbox, thread.Outbound} { // of an inbox, outbound is a consumer like any other
		if got, err := e.Ack(ctx, store.Inbox("a"), name, 1, false); err != nil || got != 1 {
			t.Fatalf("%s is at %d, %v", name, got, err)
		}
	}
	check(2, 1, 1)
	settle(3)
	check(2, 3, 1)
	if got, err := e.Ack(ctx, store.Inbox("a"), thread.Inbox, 2, true); err != nil || got != 3 {
		t.Errorf("a pop forward from 3 to 2 answers %d, %v", got, err)
	}
	check(2, 3, 1)
}
