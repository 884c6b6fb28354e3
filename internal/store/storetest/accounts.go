package storetest

import (
	"testing"
	"time"

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
		s.Usage = store.Usage{Input: 5, Output: 2, CachedInput: 2, Reasoning: 1, CacheWrite: 3}
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
	"usage": func(t *testing.T, f *fixture) {
		f.push(t, "1", "2")
		f.ensure(t)
		pending := f.open(t).Events
		record := func(key string, steps ...store.Step) {
			_, err := f.Record(t.Context(), threadA, runner, store.Record{Key: key, Steps: steps})
			ok(t, err)
		}
		answer := func(seq int, key, model string, u store.Usage) store.Step {
			s := step(seq, store.StepModel, key, "", store.StepDone)
			s.Name, s.Usage = model, u
			return s
		}
		a, b := store.Usage{Input: 10, Output: 2, CachedInput: 4, Reasoning: 1, CacheWrite: 3}, store.Usage{Input: 5, Output: 1}
		first, second := pending[0].Key, pending[1].Key
		f.begin(t, pending[0], false)
		record(first, answer(1, "model:1", "p/m", a), step(2, store.StepTool, "tool:1:1", store.ClassRead, store.StepDone))
		record(first, answer(1, "model:1", "p/m", a)) // repeated after a lost answer: paid once
		record(first, answer(3, "model:2", "p/n", b))
		fin := replied(pending[0])
		f.finish(t, fin)
		f.begin(t, pending[1], false)
		record(second, answer(4, "model:1", "p/m", b)) // also the last of all in the same millisecond

		sum := func(q store.SumUsage) []store.UsageSum {
			t.Helper()
			out, err := f.SumUsage(t.Context(), threadA, q)
			ok(t, err)
			return out
		}
		both := a
		both.Add(b)
		equal(t, "by model", sum(store.SumUsage{}), []store.UsageSum{{Model: "p/m", Answers: 2, Usage: both}, {Model: "p/n", Answers: 1, Usage: b}})
		equal(t, "of one turn", sum(store.SumUsage{ByRun: true, Turns: []string{second}}), []store.UsageSum{{Model: "p/m", Turn: second, Answers: 1, Usage: b}})
		equal(t, "runs", len(sum(store.SumUsage{ByRun: true})), 3)
		for _, s := range sum(store.SumUsage{ByDay: true, Since: time.Now().Add(-time.Hour)}) {
			if _, err := time.Parse("2006-01-02", s.Day); err != nil {
				t.Error(err)
			}
		}
		equal(t, "later", len(sum(store.SumUsage{Since: time.Now().Add(time.Hour)})), 0)
		equal(t, "of no turn", len(sum(store.SumUsage{Turns: []string{}})), 0)
		for since, want := range map[time.Time]store.UsageSum{
			{}: {Model: "p/m", Turn: second, Answers: 1, Usage: b}, time.Now().Add(time.Hour): {},
		} {
			last, err := f.LastAnswer(t.Context(), threadA, since)
			ok(t, err)
			equal(t, "the last answer", last, want)
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
