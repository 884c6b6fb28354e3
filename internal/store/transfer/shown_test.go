package transfer_test

import (
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// How far a reader is shown that our own consumers have come is the same there and back:
// where a pop from outside has put them, where they are not shown to have moved, and
// where they came to themselves.
func TestShownMoves(t *testing.T) {
	w := newWorld(t)
	w.live(t, "alice")
	ctx := t.Context()
	inbox, conversation := store.Inbox("alice"), store.Ref{Agent: "alice", Thread: talk}
	w.lite(t, func(e store.Engine) {
		got, err := e.Ack(ctx, inbox, thread.Inbox, 1, false)
		ok(t, err)
		if got != 1 {
			t.Errorf("popped to %d", got)
		}
	})
	w.stop(t, "alice")
	w.lite(t, func(e store.Engine) { ok(t, e.Subscribe(ctx, inbox, store.Subscription{Consumer: thread.Inbox})) }) // it is shown
	d, err := db.Open(ctx, filepath.Join(w.home.AgentDir("alice"), talk), db.Options{})
	ok(t, err)
	ok(t, d.Do(ctx, true, func(tx *db.Tx) error { // as a repair leaves it
		_, err := tx.Exec("DELETE FROM consumer_progress WHERE consumer_id = 'outbound'")
		return err
	}))
	ok(t, d.Close())
	var was string
	w.lite(t, func(e store.Engine) { was = answers(t, e, "alice") })
	there := func() {
		t.Helper()
		_, err := w.move("alice", true).ToDatabase(ctx)
		ok(t, err)
		if is := answers(t, w.pg, "alice"); is != was {
			t.Errorf("there:\n %s\nwas\n %s", is, was)
		}
	}
	back := func() {
		t.Helper()
		_, err := w.move("alice", true).ToHome(ctx)
		ok(t, err)
		w.lite(t, func(e store.Engine) {
			if is := answers(t, e, "alice"); is != was {
				t.Errorf("back:\n %s\nwas\n %s", is, was)
			}
		})
	}
	there()
	back()
	there()
	run, send := store.Fence{Resource: lease.AgentResource("alice"), Token: 9}, store.Fence{Resource: lease.DeliverResource("alice"), Token: 9}
	s, err := w.pg.State(ctx, "alice")
	ok(t, err)
	turn, err := w.pg.Turn(ctx, "alice", store.TurnQuery{InboxID: s.Acked + 1, Route: func(thread.Event, string) (string, error) { return talk, nil }})
	ok(t, err)
	_, err = w.pg.Settle(ctx, "alice", run, store.Settlement{InboxID: s.Acked + 1, Key: turn.Key, Thread: talk, Fate: store.FateSilent})
	ok(t, err)
	ok(t, w.pg.Subscribe(ctx, conversation, store.Subscription{Consumer: thread.Inbox})) // a stranger here
	_, err = w.pg.Ack(ctx, conversation, thread.Inbox, 2, false)
	ok(t, err)
	_, err = w.pg.NextDelivery(ctx, conversation, send, store.NextDelivery{BootID: "b"})
	ok(t, err)
	was = answers(t, w.pg, "alice")
	in, err := w.pg.Info(ctx, inbox)
	ok(t, err)
	if got := in.Subscriptions[0]; got.Acked != s.Acked+1 || got.UpdatedAt == "" {
		t.Errorf("after an ack there: %+v", got)
	}
	back()
	there()
}
