package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// settle gives inbox events the fate silent and answers the ack after the last.
func (f *fixture) settle(t *testing.T, list ...int64) int64 {
	t.Helper()
	var acked int64
	for _, id := range list {
		_, key, err := f.InboxEvent(t.Context(), "a", id)
		ok(t, err)
		acked, err = f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: id, Key: key, Thread: threadA.Thread, Fate: store.FateSilent})
		ok(t, err)
	}
	return acked
}

// routes opens a batch under a mode, with the events of claimed begun, and
// answers the mode of each open event.
func (f *fixture) routes(t *testing.T, mode string, claimed ...int64) []string {
	t.Helper()
	o := batch(mode)
	o.Claimed = func(_ context.Context, e thread.Event, key, under string) (bool, error) {
		if _, ok := thread.KeyID(key); !ok || under == "" {
			t.Errorf("asked for key %q under mode %q", key, under)
		}
		return slices.Contains(claimed, e.ID), nil
	}
	o.Route = func(_ thread.Event, mode string) (string, error) { return "threads/" + mode, nil }
	b, err := f.OpenBatch(t.Context(), "a", runner, o)
	ok(t, err)
	var out []string
	for _, p := range b.Events {
		out = append(out, p.Thread[len("threads/"):])
	}
	return out
}

var batches = map[string]func(*testing.T, *fixture){
	"open answers what has no fate": func(t *testing.T, f *fixture) {
		list := f.push(t, "1", "2", "3")
		b := f.open(t)
		equal(t, "head, scanned, more, acked", []any{b.Head, b.Scanned, b.More, b.Acked}, []any{3, 3, false, 0})
		for i, p := range b.Events {
			equal(t, "event", p.Event, list[i])
			_, key, err := f.InboxEvent(t.Context(), "a", p.Event.ID)
			ok(t, err)
			equal(t, "key", p.Key, key)
		}
		f.settle(t, 2)
		equal(t, "open", ids(eventsOf(f.open(t))), []int64{1, 3})
		o := batch("m1")
		o.After, o.Limit = 1, 1
		f.push(t, "4")
		b, err := f.OpenBatch(t.Context(), "a", runner, o)
		ok(t, err)
		equal(t, "one after 1", []any{ids(eventsOf(b)), b.More, b.Scanned, b.Head}, []any{[]int64{3}, true, 3, 4})
		_, _, err = f.InboxEvent(t.Context(), "a", 9)
		is(t, err, store.ErrNoTurn)
		o.After = 9
		b, err = f.OpenBatch(t.Context(), "a", runner, o)
		ok(t, err)
		equal(t, "after more than there is", []any{len(b.Events), b.More, b.Scanned, b.Head}, []any{0, false, 9, 4})
	},
	"open settles what can have no turn": func(t *testing.T, f *fixture) {
		sub := "decision"
		_, err := f.Append(t.Context(), inboxA, []store.NewEvent{{Source: "s", Type: thread.TypeRecord, Subtype: &sub, Content: "x"}, msg("bad"), msg("good")}, store.AppendOptions{})
		ok(t, err)
		o := batch("m1")
		o.Route = func(e thread.Event, _ string) (string, error) {
			if e.Content == "bad" {
				return "", errors.New("no such peer")
			}
			return threadA.Thread, nil
		}
		b, err := f.OpenBatch(t.Context(), "a", runner, o)
		ok(t, err)
		equal(t, "open, settled, acked", []any{ids(eventsOf(b)), b.Settled, b.Acked}, []any{[]int64{3}, 2, 2})
		list, err := f.ListTurns(t.Context(), "a", store.ListTurns{Limit: 10})
		ok(t, err)
		equal(t, "fates", []store.Fate{list[0].Fate, list[1].Fate, list[2].Fate}, []store.Fate{"", store.FateDead, store.FateNotAMessage})
		equal(t, "error", list[1].Error, "no such peer")
	},
	// RELIABILITY 2, x_route: one event is never routed twice.
	"a changed mode begins at the first unclaimed event": func(t *testing.T, f *fixture) {
		f.push(t, "1", "2", "3", "4")
		equal(t, "first", f.routes(t, "m1"), []string{"m1", "m1", "m1", "m1"})
		equal(t, "two in flight", f.routes(t, "m2", 1, 2), []string{"m1", "m1", "m2", "m2"})
		equal(t, "again the same", f.routes(t, "m2"), []string{"m1", "m1", "m2", "m2"})
		equal(t, "changed twice", f.routes(t, "m3", 1, 2), []string{"m1", "m1", "m3", "m3"})
		equal(t, "out of order in flight", f.routes(t, "m1", 1, 3), []string{"m1", "m1", "m3", "m1"})
		f.settle(t, 1, 2, 3)
		f.push(t, "5")
		equal(t, "after the ack", f.routes(t, "m4"), []string{"m4", "m4"})
	},
	"a mode that cannot be asked for changes nothing": func(t *testing.T, f *fixture) {
		f.push(t, "1")
		f.routes(t, "m1")
		o, broken := batch("m2"), errors.New("broken")
		o.Claimed = func(context.Context, thread.Event, string, string) (bool, error) {
			return false, errors.Join(broken, store.ErrIO)
		}
		_, err := f.OpenBatch(t.Context(), "a", runner, o)
		is(t, err, broken)
		equal(t, "modes", f.routes(t, "m1"), []string{"m1"})
	},
	// I7: the ack is the end of the contiguous prefix and never moves back.
	"settle moves the ack over the done prefix": func(t *testing.T, f *fixture) {
		f.push(t, "1", "2", "3", "4", "5")
		for _, c := range []struct{ id, want int64 }{{3, 0}, {5, 0}, {1, 1}, {1, 1}, {2, 3}, {2, 3}, {4, 5}} {
			equal(t, "ack", f.settle(t, c.id), c.want)
		}
		ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: thread.Inbox}))
		in, err := f.Info(t.Context(), inboxA)
		ok(t, err)
		equal(t, "mirror", in.Subscriptions[0].Acked, 5) // S0-69
		for _, id := range []int64{0, 99} {
			_, err = f.Ack(t.Context(), inboxA, thread.Inbox, id, false)
			ok(t, err)
			f.push(t, "more")
			equal(t, "open after a foreign pop", len(f.open(t).Events), 1)
			s, err := f.State(t.Context(), "a")
			ok(t, err)
			f.settle(t, s.Head)
		}
	},
	"a fate is given once": func(t *testing.T, f *fixture) {
		f.push(t, "1")
		f.settle(t, 1)
		acked, err := f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: 1, Key: "k", Fate: store.FateDead, Error: "late"})
		ok(t, err)
		equal(t, "ack", acked, 1)
		turn, err := f.Turn(t.Context(), "a", store.TurnQuery{InboxID: 1, Route: batch("").Route})
		ok(t, err)
		equal(t, "fate", []any{turn.Fate, turn.Error}, []any{store.FateSilent, ""})
		s, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "dead", s.Dead, 0)
	},
	"state": func(t *testing.T, f *fixture) {
		s, err := f.State(t.Context(), "b")
		ok(t, err)
		if s.UUID == "" || s.Started || s.Head != 0 {
			t.Errorf("fresh: %+v", s)
		}
		f.push(t, "1", "2", "3")
		f.settle(t, 2)
		f.open(t)
		s, err = f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "head, acked, pending", []int64{s.Head, s.Acked, s.Pending}, []int64{3, 0, 2})
		equal(t, "seal", s.Fences, map[string]uint64{runner.Resource: runner.Token})
		if s.LastAt == "" {
			t.Error("no time of the last event")
		}
	},
	"desired state": func(t *testing.T, f *fixture) {
		for _, c := range []struct{ start, changed bool }{{false, false}, {true, true}, {true, false}, {false, true}, {true, true}} {
			changed, err := f.SetStarted(t.Context(), "a", c.start, "agent run a")
			ok(t, err)
			s, err := f.State(t.Context(), "a")
			ok(t, err)
			equal(t, "changed, started, subscribed", []bool{changed, s.Started, s.Subscribed}, []bool{c.changed, c.start, c.start})
		}
		// What is desired outlives a subscription that another program removed.
		ok(t, f.Unsubscribe(t.Context(), inboxA, thread.Inbox))
		s, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "started, subscribed", []bool{s.Started, s.Subscribed}, []bool{true, false})
		_, err = f.SetStarted(t.Context(), "a", true, "agent run a")
		ok(t, err)
		in, err := f.Info(t.Context(), inboxA)
		ok(t, err)
		equal(t, "handler", in.Subscriptions[0].Handler, "agent run a")
	},
	"a subscription says that the agent shall work": func(t *testing.T, f *fixture) {
		state := func(what string, started, subscribed bool) {
			t.Helper()
			s, err := f.State(t.Context(), "a")
			ok(t, err)
			equal(t, what, []bool{s.Started, s.Subscribed}, []bool{started, subscribed})
		}
		state("nobody has said", false, false)
		ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: "other"}))
		state("of another consumer", false, false)
		ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: thread.Inbox}))
		state("subscribed", true, true)
		ok(t, f.Unsubscribe(t.Context(), inboxA, thread.Inbox))
		state("unsubscribed", true, false)
		_, err := f.SetStarted(t.Context(), "a", false, "")
		ok(t, err)
		ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: thread.Inbox}))
		state("stopped, and subscribed after that", false, true)
	},
	"outbox marks": func(t *testing.T, f *fixture) {
		f.push(t, "1", "2")
		outbox := func(want ...string) {
			t.Helper()
			s, err := f.State(t.Context(), "a")
			ok(t, err)
			equal(t, "outbox", s.Outbox, want)
		}
		mark := func(m store.OutboxMark) { t.Helper(); ok(t, f.MarkOutbox(t.Context(), "a", m)) }
		outbox()
		for i, head := range []int64{4, 2} {
			_, err := f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: int64(i + 1), Key: "k", Thread: "threads/x", Fate: store.FateReplied, OutboxHead: head})
			ok(t, err)
			outbox("threads/x")
		}
		mark(store.OutboxMark{Thread: "threads/x", Acked: 3})
		outbox("threads/x")
		mark(store.OutboxMark{Thread: "threads/x", Acked: 4, Dead: 1})
		outbox()
		s, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "dead", s.Dead, 1)
		mark(store.OutboxMark{Thread: "threads/x", Acked: 4, Reopen: true})
		mark(store.OutboxMark{Thread: "threads/y", Reopen: true})
		outbox("threads/x", "threads/y")
		mark(store.OutboxMark{Thread: "threads/x", Acked: 6})
		mark(store.OutboxMark{Thread: "threads/y", Acked: 2})
		outbox()
	},
}

func eventsOf(b store.Batch) []thread.Event {
	var out []thread.Event
	for _, p := range b.Events {
		out = append(out, p.Event)
	}
	return out
}
