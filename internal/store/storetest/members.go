package storetest

import (
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// lead claims the first of three events together with the other two.
func (f *fixture) lead(t *testing.T) (list []store.Pending, begun store.Begun) {
	t.Helper()
	f.ensure(t)
	for _, text := range []string{"1", "2", "3"} {
		f.push(t, text)
	}
	list = f.open(t).Events
	begun, err := f.Begin(t.Context(), threadA, runner, store.Begin{
		Event: list[0].Event, Key: list[0].Key, Tail: 10, Handler: "deliver", Members: followers(list[1:]),
	})
	ok(t, err)
	return list, begun
}

func followers(list []store.Pending) (out []store.Member) {
	for _, p := range list {
		out = append(out, store.Member{Event: p.Event, Key: p.Key})
	}
	return out
}

func (f *fixture) fates(t *testing.T, list []store.Pending) (out []store.Fate) {
	t.Helper()
	for _, p := range list {
		turn, err := f.Turn(t.Context(), "a", store.TurnQuery{InboxID: p.Event.ID, Route: func(thread.Event, string) (string, error) { return threadA.Thread, nil }})
		ok(t, err)
		out = append(out, turn.Fate)
	}
	return out
}

// S1-20, S1-21: what is written of events that are answered together.
var members = map[string]func(*testing.T, *fixture){
	"members are recorded with their leader": func(t *testing.T, f *fixture) {
		list, begun := f.lead(t)
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "in", "in"})
		equal(t, "steps", []any{len(begun.Steps), begun.Steps[0].Key, begun.Steps[0].Kind}, []any{1, store.StepCollect, store.StepSteer})
		equal(t, "tail", len(begun.Tail), 1)
		again := f.begin(t, list[0], true)
		equal(t, "the step of a later claim", string(again.Steps[0].Result), string(begun.Steps[0].Result))
	},
	"one reply, the others are merged": func(t *testing.T, f *fixture) {
		list, _ := f.lead(t)
		done := f.finish(t, store.Finish{Key: list[0].Key, Fate: store.FateReplied, Reply: "re"})
		equal(t, "merged", done.Merged, []store.MergedMember{{InboxID: list[1].Event.ID, Key: list[1].Key}, {InboxID: list[2].Event.ID, Key: list[2].Key}})
		equal(t, "killed before the inbox knew", f.begin(t, list[1], false).Finished.Fate, store.FateMerged)
		again := f.begin(t, list[0], false)
		equal(t, "told again", again.Finished.Merged, done.Merged)
		acked, err := f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: list[0].Event.ID, Key: list[0].Key, Thread: threadA.Thread, Fate: done.Fate, Merged: done.Merged})
		ok(t, err)
		equal(t, "acked", acked, list[2].Event.ID)
		equal(t, "fates", f.fates(t, list), []store.Fate{store.FateReplied, store.FateMerged, store.FateMerged})
	},
	"an end that settles leaves what Settle leaves": func(t *testing.T, f *fixture) {
		list, _ := f.lead(t)
		f.push(t, "4")
		fin := store.Finish{Key: list[0].Key, Fate: store.FateReplied, Reply: "re", Deliver: true, InboxID: list[0].Event.ID}
		before, err := f.State(t.Context(), "a")
		ok(t, err)
		for range 2 { // the second time it stands already
			done := f.finish(t, fin)
			if !done.Settled { // the inbox is another database
				done.Acked, err = f.Settle(t.Context(), "a", runner, store.Settlement{
					InboxID: list[0].Event.ID, Key: list[0].Key, Thread: threadA.Thread, Fate: done.Fate, OutboxHead: done.OutboxHead, Merged: done.Merged,
				})
				ok(t, err)
			}
			equal(t, "acked", done.Acked, list[2].Event.ID)
			now, err := f.State(t.Context(), "a")
			ok(t, err)
			equal(t, "inbox", []any{now.Pending, now.Head, now.Acked, now.Outbox, now.Started}, []any{int64(1), int64(4), int64(3), []string{threadA.Thread}, before.Started})
		}
		equal(t, "fates", f.fates(t, list), []store.Fate{store.FateReplied, store.FateMerged, store.FateMerged})
		left := f.open(t).Events
		equal(t, "left to do", len(left), 1)
		f.begin(t, left[0], false)
		f.revoke(runner.Resource, runner.Token)
		_, err = f.Finish(t.Context(), threadA, runner, store.Finish{Key: left[0].Key, Fate: store.FateSilent, InboxID: left[0].Event.ID})
		is(t, err, store.ErrLeaseLost)
		equal(t, "fate of what was refused", f.fates(t, left), []store.Fate{""})
	},
	// A person who aborts a run does not end the messages that joined it: they are answered.
	"an aborted leader releases its members for good": func(t *testing.T, f *fixture) {
		list, _ := f.lead(t)
		done := f.finish(t, store.Finish{Key: list[0].Key, Fate: store.FateAborted, Error: "by hand"})
		equal(t, "merged", len(done.Merged), 0)
		equal(t, "repeated", len(f.finish(t, store.Finish{Key: list[0].Key, Fate: store.FateAborted}).Merged), 0)
		equal(t, "alone", f.begin(t, list[1], false).Outcome, store.BeginGo)
		equal(t, "fates", f.fates(t, list), []store.Fate{store.FateAborted, "", ""})
	},
	"a dead leader releases its members for good": func(t *testing.T, f *fixture) {
		list, _ := f.lead(t)
		done := f.finish(t, store.Finish{Key: list[0].Key, Fate: store.FateDead, Error: "e", Record: "{}"})
		equal(t, "merged", len(done.Merged), 0)
		b, err := f.Begin(t.Context(), threadA, runner, store.Begin{Event: list[1].Event, Key: list[1].Key, Tail: 10, Members: followers(list[2:])})
		ok(t, err)
		equal(t, "alone, once recorded", []any{b.Outcome, len(b.Steps), len(f.all(t, threadA))}, []any{store.BeginGo, 0, 4})
		equal(t, "fates", f.fates(t, list), []store.Fate{store.FateDead, "", ""})
	},
	"messages join a running turn once, in their order": func(t *testing.T, f *fixture) {
		f.ensure(t)
		for _, text := range []string{"1", "2", "3", "4"} {
			f.push(t, text)
		}
		list := f.open(t).Events
		f.begin(t, list[0], false)
		steer := func(key string, seq int, who ...store.Pending) store.Step {
			t.Helper()
			s, err := f.Steer(t.Context(), threadA, runner, store.Steer{Key: list[0].Key, Step: key, Seq: seq, Members: followers(who)})
			ok(t, err)
			return s
		}
		first := steer("steer:2", 5, list[1])
		equal(t, "repeated", string(steer("steer:2", 9, list[1], list[2]).Result), string(first.Result))
		equal(t, "nobody new", steer("steer:3", 6, list[1]).Key, "")
		equal(t, "the rest", steer("steer:3", 7, list[1], list[2]).Key, "steer:3")
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "in", "in"})
		done := f.finish(t, store.Finish{Key: list[0].Key, Fate: store.FateSilent})
		equal(t, "merged", len(done.Merged), 2)
		equal(t, "too late", steer("steer:4", 8, list[3]).Key, "")
		equal(t, "a turn of its own", f.begin(t, list[3], false).Outcome, store.BeginGo)
	},
	// RELIABILITY 5: innocents do not die with a killer.
	"a leader that crashes goes on alone": func(t *testing.T, f *fixture) {
		list, _ := f.lead(t)
		for range 2 {
			equal(t, "steps", len(f.begin(t, list[0], true).Steps), 1)
		}
		equal(t, "steps", len(f.begin(t, list[0], true).Steps), 0)
		equal(t, "a member", f.begin(t, list[1], false).Outcome, store.BeginGo)
	},
	"what was said in its files stays with a leader that goes on alone": func(t *testing.T, f *fixture) {
		list, _ := f.lead(t)
		f.record(t, store.Record{Key: list[0].Key, Steps: []store.Step{step(2, store.StepTranscript, "transcribe:1", "", store.StepDone)}}) // which is progress
		for range 3 {
			equal(t, "steps", len(f.begin(t, list[0], true).Steps), 2)
		}
		left := f.begin(t, list[0], true).Steps
		equal(t, "steps", []any{len(left), left[0].Key}, []any{1, "transcribe:1"})
		equal(t, "a member", f.begin(t, list[1], false).Outcome, store.BeginGo)
	},
}
