package storetest

import (
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

var accounts = map[string]func(*testing.T, *fixture){
	"a turn through its life": func(t *testing.T, f *fixture) {
		e := f.push(t, "1")[0]
		q := store.TurnQuery{InboxID: e.ID, Route: batch("").Route}
		state := func(want ...any) store.Turn {
			t.Helper()
			turn, err := f.Turn(t.Context(), "a", q)
			ok(t, err)
			equal(t, "turn", []any{turn.State, turn.Fate, turn.Thread, turn.Source}, append(want, alice))
			return turn
		}
		if queued := state(store.TurnQueued, "", ""); queued.QueuedAt.IsZero() || queued.Key == "" {
			t.Errorf("queued: %+v", queued)
		}
		p := f.open(t).Events[0]
		state(store.TurnQueued, "", threadA.Thread)
		f.ensure(t)
		found, err := f.Claimed(t.Context(), threadA, p.Key)
		ok(t, err)
		equal(t, "claimed", found, false)
		f.begin(t, p, false)
		found, err = f.Claimed(t.Context(), threadA, p.Key)
		ok(t, err)
		equal(t, "claimed", found, true)
		if c := state(store.TurnClaimed, "", threadA.Thread); c.ClaimedAt.IsZero() {
			t.Errorf("claimed: %+v", c)
		}
		s := step(1, store.StepModel, "model:1", "", store.StepDone)
		s.Usage = store.Usage{Input: 1, Output: 2}
		fin := replied(p)
		fin.Steps = []store.Step{s}
		f.finish(t, fin)
		state(store.TurnDone, store.FateReplied, threadA.Thread)
		_, err = f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: e.ID, Key: p.Key, Thread: threadA.Thread, Fate: store.FateReplied, OutboxHead: 2})
		ok(t, err)
		done := state(store.TurnDone, store.FateReplied, threadA.Thread)
		equal(t, "ids, usage", []any{done.InboundID, done.ReplyID, done.Usage, done.Delivery.EventID}, []any{1, 2, s.Usage, 2})
		for _, bad := range []store.TurnQuery{{InboxID: 99, Route: q.Route}, {InboxID: e.ID, Key: "u:1:0", Route: q.Route}} {
			_, err = f.Turn(t.Context(), "a", bad)
			is(t, err, store.ErrNoTurn)
		}
	},
	"lists": func(t *testing.T, f *fixture) {
		f.push(t, "1", "2", "3", "4", "5")
		for id, fate := range map[int64]store.Fate{1: store.FateDead, 2: store.FateSilent, 4: store.FateDead} {
			_, err := f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: id, Key: "k", Fate: fate, Error: "why"})
			ok(t, err)
		}
		_, _, err := f.ResolveTurn(t.Context(), "a", 1, "dropped")
		ok(t, err)
		for _, c := range []struct {
			q    store.ListTurns
			want []int64
		}{
			{store.ListTurns{Limit: 10}, []int64{5, 4, 3, 2, 1}},
			{store.ListTurns{Limit: 2}, []int64{5, 4}},
			{store.ListTurns{Limit: 2, Before: 4}, []int64{3, 2}},
			{store.ListTurns{Limit: 10, Fate: store.FateDead}, []int64{4, 1}},
			{store.ListTurns{Limit: 10, Fate: store.FateDead, Unresolved: true}, []int64{4}},
			{store.ListTurns{Limit: 10, Fate: store.FateSilent}, []int64{2}},
		} {
			list, err := f.ListTurns(t.Context(), "a", c.q)
			ok(t, err)
			var got []int64
			for _, l := range list {
				got = append(got, l.InboxID)
			}
			equal(t, "ids", got, c.want)
		}
	},
	"dead turns are resolved": func(t *testing.T, f *fixture) {
		list := f.push(t, "1", "2")
		f.settle(t, 2)
		_, err := f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: 1, Key: "k", Fate: store.FateDead, Error: "why"})
		ok(t, err)
		for range 2 {
			ev, key, err := f.ResolveTurn(t.Context(), "a", 1, "retried")
			ok(t, err)
			equal(t, "event", ev, list[0])
			if id, ok := thread.KeyID(key); !ok || id != 1 {
				t.Errorf("key %q", key)
			}
		}
		_, _, err = f.ResolveTurn(t.Context(), "a", 1, "dropped")
		is(t, err, store.ErrNotDead)
		_, _, err = f.ResolveTurn(t.Context(), "a", 2, "dropped")
		is(t, err, store.ErrNotDead)
		_, _, err = f.ResolveTurn(t.Context(), "a", 9, "dropped")
		is(t, err, store.ErrNoTurn)
		s, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "dead", s.Dead, 0)
	},
}
