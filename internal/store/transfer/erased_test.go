package transfer_test

import (
	"context"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// What was erased stays so on the way there and back, keeps its keys and its proofs, and
// is erased further at either end; a tomb that was changed is no tomb.
func TestErasedMoves(t *testing.T) {
	w := newWorld(t)
	w.live(t, "alice")
	w.stop(t, "alice")
	ctx := t.Context()
	inbox, conversation := store.Inbox("alice"), store.Ref{Agent: "alice", Thread: talk}
	erase := func(e store.Engine, of func(thread.Event) bool) {
		t.Helper()
		s, err := e.Share(ctx, inbox, store.PeerQuery{Match: of})
		ok(t, err)
		in, err := e.Share(ctx, conversation, store.PeerQuery{Turns: s.Turns})
		ok(t, err)
		ok(t, e.Erase(ctx, conversation, in))
		ok(t, e.Erase(ctx, inbox, s))
	}
	verify := func(e store.Engine) {
		t.Helper()
		for _, r := range []store.Ref{inbox, conversation} {
			_, err := e.(interface {
				VerifyChain(ctx context.Context, r store.Ref) (int64, error)
			}).VerifyChain(ctx, r)
			ok(t, err)
		}
	}
	same := func(e store.Engine, was string) {
		t.Helper()
		verify(e)
		if is := answers(t, e, "alice"); is != was {
			t.Errorf("is\n %s\nwas\n %s", is, was)
		}
	}
	var was string
	w.lite(t, func(e store.Engine) {
		erase(e, func(e thread.Event) bool { return e.ID == 1 })
		was = answers(t, e, "alice")
	})
	_, err := w.move("alice", true).ToDatabase(ctx)
	ok(t, err)
	same(w.pg, was)
	erase(w.pg, func(e thread.Event) bool { return e.ID <= 2 })
	verify(w.pg)
	now := answers(t, w.pg, "alice")
	if now == was {
		t.Error("nothing was erased in the database")
	}
	change := func(sql string) {
		t.Helper()
		_, err := w.pg.Pool().Exec(ctx, sql+" WHERE thread_id = 'inbox' AND id = 1")
		ok(t, err)
	}
	change("UPDATE event SET erased_key = 'x' || erased_key")
	if _, err := w.move("alice", true).ToHome(ctx); !fault.Is(err, fault.DatabaseCorrupt) {
		t.Errorf("with a tomb that was changed: %v", err)
	}
	change("UPDATE event SET erased_key = substr(erased_key, 2)")
	_, err = w.move("alice", true).ToHome(ctx)
	ok(t, err)
	w.lite(t, func(e store.Engine) {
		same(e, now)
		erase(e, func(e thread.Event) bool { return e.ID <= 2 })
		same(e, now)
	})
}
