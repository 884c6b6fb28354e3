package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// originOf is an origin with a value in each field.
func originOf(threadID string) *store.Origin {
	return &store.Origin{
		Thread: threadID, Key: "agent:a:" + threadID, Account: "work", ProviderID: "p-" + threadID, Rev: 7,
		Command: `{"name":"new"}`, SentAt: time.UnixMilli(1764200000123), Cause: "schedule",
	}
}

func from(text string, o *store.Origin) store.NewEvent {
	e := msg(text)
	e.Origin = o
	return e
}

// pushed appends events to the inbox of a.
func (f *fixture) pushed(t *testing.T, key string, events ...store.NewEvent) store.Appended {
	t.Helper()
	out, err := f.Append(t.Context(), inboxA, events, store.AppendOptions{Key: key})
	ok(t, err)
	return out
}

// origin answers the origin of an event in the inbox of a.
func (f *fixture) origin(t *testing.T, id int64) *store.Origin {
	t.Helper()
	o, err := f.Origin(t.Context(), "a", id)
	ok(t, err)
	return o
}

// routed opens a batch under a mode and answers where each event goes. It fails when an event
// with an origin is asked for.
func (f *fixture) routed(t *testing.T, mode string, begun ...string) (out []string) {
	t.Helper()
	o := batch(mode)
	o.Claimed = func(_ context.Context, e thread.Event, _, _ string) (bool, error) {
		if e.Content == "origin" {
			t.Errorf("asked whether event %d, which has an origin, was begun", e.ID)
		}
		for _, text := range begun {
			if e.Content == text {
				return true, nil
			}
		}
		return false, nil
	}
	o.Route = func(e thread.Event, mode string) (string, error) {
		if e.Content == "origin" {
			t.Errorf("asked for the route of event %d, which has an origin", e.ID)
		}
		return "threads/" + mode, nil
	}
	b, err := f.OpenBatch(t.Context(), "a", runner, o)
	ok(t, err)
	for _, p := range b.Events {
		equal(t, fmt.Sprint("origin of event ", p.Event.ID), p.Origin, f.origin(t, p.Event.ID))
		out = append(out, p.Thread)
	}
	return out
}

var origins = map[string]func(*testing.T, *fixture){
	"an origin is stored with its event": func(t *testing.T, f *fixture) {
		o := originOf("threads/x")
		given := *o
		given.SentAt = given.SentAt.Add(456 * time.Microsecond) // stored in milliseconds
		out := f.pushed(t, "", from("1", &given), msg("2"), from("3", &store.Origin{Thread: "threads/y", Key: "k"}))
		least := &store.Origin{Thread: "threads/y", Key: "k"}
		equal(t, "answer", out.Origins, []*store.Origin{o, nil, least})
		for id, want := range map[int64]*store.Origin{1: o, 2: nil, 3: least, 9: nil} {
			equal(t, fmt.Sprint("origin of event ", id), f.origin(t, id), want)
		}
	},
	// The first decision stands, whatever the bindings are when a message comes again.
	"a repeated push keeps the origin of the first": func(t *testing.T, f *fixture) {
		first, second := originOf("threads/x"), originOf("threads/y")
		f.pushed(t, "k", from("1", first))
		f.pushed(t, "none", msg("2"))
		for _, o := range []*store.Origin{second, nil} {
			again := f.pushed(t, "k", from("1", o))
			equal(t, "repeat", []any{again.IDs, again.Duplicate, again.Origins}, []any{[]int64{1}, true, []*store.Origin{first}})
		}
		again := f.pushed(t, "none", from("2", second))
		equal(t, "repeat of one without", []any{again.IDs, again.Duplicate, again.Origins}, []any{[]int64{2}, true, []*store.Origin{nil}})
		equal(t, "stored", []*store.Origin{f.origin(t, 1), f.origin(t, 2)}, []*store.Origin{first, nil})
		_, err := f.Append(t.Context(), inboxA, []store.NewEvent{from("other", first)}, store.AppendOptions{Key: "k"})
		is(t, err, store.ErrKeyReused)
		equal(t, "events", ids(f.all(t, inboxA)), []int64{1, 2})
	},
	// I21: a platform may deliver a message again after any time.
	"the key of a message of an account is not pruned": func(t *testing.T, f *fixture) {
		f.pushed(t, "account", from("1", originOf("threads/x")))
		f.pushed(t, "client", msg("2"))
		f.pushed(t, "named", from("3", &store.Origin{Thread: "threads/y", Key: "agent:a:session:y"}))
		f.pushed(t, "both", msg("4"), from("5", originOf("threads/x")))
		for id := int64(1); id <= 5; id++ {
			p := f.pending(t, id)
			_, err := f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: id, Key: p.Key, Fate: store.FateSilent})
			ok(t, err)
		}
		for _, apply := range []bool{false, true} {
			out, err := f.Prune(t.Context(), inboxA, store.Prune{Before: time.Now().Add(time.Hour), Apply: apply})
			ok(t, err)
			equal(t, fmt.Sprint("pruned and kept, applied ", apply), []int64{out.Keys.Gone, out.Keys.Kept}, []int64{2, 2})
		}
		equal(t, "repeats", []bool{
			f.pushed(t, "account", from("1", originOf("threads/x"))).Duplicate, f.pushed(t, "both", msg("4"), msg("5")).Duplicate,
			f.pushed(t, "client", msg("2")).Duplicate, f.pushed(t, "named", msg("3")).Duplicate,
		}, []bool{true, true, false, false})
	},
	"the key of a message that was erased is not pruned": func(t *testing.T, f *fixture) {
		f.pushed(t, "account", from("1", originOf("threads/x")))
		f.settle(t, 1)
		ok(t, f.Erase(t.Context(), inboxA, store.PeerShare{Events: []int64{1}}))
		out, err := f.Prune(t.Context(), inboxA, store.Prune{Before: time.Now().Add(time.Hour), Apply: true})
		ok(t, err)
		equal(t, "pruned and kept", []int64{out.Keys.Gone, out.Keys.Kept}, []int64{0, 1})
		_, found, err := f.Pushed(t.Context(), inboxA, "account")
		ok(t, err)
		equal(t, "the platform delivers it again: it is known", found, true)
	},
	"what a push did is answered by its key": func(t *testing.T, f *fixture) {
		for _, key := range []string{"k", ""} {
			_, found, err := f.Pushed(t.Context(), inboxA, key)
			ok(t, err)
			equal(t, "a push that never was", found, false)
		}
		_, found, err := f.Pushed(t.Context(), threadA, "k")
		ok(t, err)
		equal(t, "a push in no thread", found, false)
		f.pushed(t, "", msg("0"))
		f.pushed(t, "k", from("1", originOf("threads/x")), msg("2"))
		f.pushed(t, "one", msg("3"))
		for key, events := range map[string][]store.NewEvent{"k": {msg("1"), msg("2")}, "one": {msg("3")}} {
			got, found, err := f.Pushed(t.Context(), inboxA, key)
			ok(t, err)
			equal(t, "push "+key, []any{found, got}, []any{true, f.pushed(t, key, events...)})
			if len(got.IDs) != len(events) || len(got.Keys) != len(events) || len(got.Origins) != len(events) || !got.Duplicate {
				t.Errorf("push %s: %+v", key, got)
			}
		}
		f.ensure(t)
		_, err = f.Append(t.Context(), threadA, []store.NewEvent{msg("context")}, store.AppendOptions{Key: "k"})
		ok(t, err)
		got, found, err := f.Pushed(t.Context(), threadA, "k")
		ok(t, err)
		equal(t, "push in a conversation", []any{found, got.IDs, got.Keys, got.Origins}, []any{true, []int64{1}, nil, nil})
	},
	// The route is fixed with the push, and what has no origin follows the mode.
	"an event goes where its origin says in each mode": func(t *testing.T, f *fixture) {
		f.pushed(t, "", msg("1"), from("origin", originOf("threads/o")), msg("3"))
		equal(t, "first mode", f.routed(t, "m1"), []string{"threads/m1", "threads/o", "threads/m1"})
		equal(t, "second mode, the first is begun", f.routed(t, "m2", "1"), []string{"threads/m1", "threads/o", "threads/m2"})
		f.pushed(t, "", from("origin", originOf("threads/p")), msg("5"))
		equal(t, "third mode", f.routed(t, "m3", "1"), []string{"threads/m1", "threads/o", "threads/m3", "threads/p", "threads/m3"})
	},
	"a mode does not hold for events before one with an origin": func(t *testing.T, f *fixture) {
		f.pushed(t, "", msg("1"), from("origin", originOf("threads/x")))
		f.routed(t, "m1")
		_, err := f.Ensure(t.Context(), threadA, "")
		ok(t, err)
		p := f.pending(t, 2)
		_, err = f.Begin(t.Context(), threadA, runner, begin(p))
		ok(t, err)
		equal(t, "second mode", f.routed(t, "m2"), []string{"threads/m2", "threads/x"})
	},
	"a record with an origin has no turn": func(t *testing.T, f *fixture) {
		e := from("1", originOf("threads/x"))
		e.Type = thread.TypeRecord
		f.pushed(t, "", e)
		turn, err := f.Turn(t.Context(), "a", store.TurnQuery{InboxID: 1, Route: nowhere(t)})
		ok(t, err)
		equal(t, "thread before a batch", turn.Thread, "")
		b := f.open(t)
		equal(t, "batch", []any{len(b.Events), b.Settled, b.Acked}, []any{0, 1, 1})
		turn, err = f.Turn(t.Context(), "a", store.TurnQuery{InboxID: 1})
		ok(t, err)
		equal(t, "turn", []any{turn.Fate, turn.Thread, turn.Origin}, []any{store.FateNotAMessage, "", originOf("threads/x")})
	},
	"a message is explained by its origin": func(t *testing.T, f *fixture) {
		o := originOf(threadA.Thread)
		f.pushed(t, "", msg("0"), from("1", o))
		look := func(what, state string) store.Turn {
			t.Helper()
			turn, err := f.Turn(t.Context(), "a", store.TurnQuery{InboxID: 2, Route: nowhere(t)})
			ok(t, err)
			equal(t, what, []any{turn.State, turn.Thread, turn.Origin}, []any{state, threadA.Thread, o})
			list, err := f.ListTurns(t.Context(), "a", store.ListTurns{Limit: 2})
			ok(t, err)
			equal(t, what+", in the list", []any{len(list), list[0].InboxID, list[0].Thread}, []any{2, 2, threadA.Thread})
			return turn
		}
		look("before any batch", store.TurnQueued)
		f.open(t)
		look("in a batch", store.TurnQueued)
		f.ensure(t)
		p := f.pending(t, 2)
		_, err := f.Begin(t.Context(), threadA, runner, begin(p))
		ok(t, err)
		look("claimed", store.TurnClaimed)
		_, err = f.Finish(t.Context(), threadA, runner, store.Finish{Key: p.Key, Fate: store.FateSilent})
		ok(t, err)
		f.settle(t, 2)
		if turn := look("settled", store.TurnDone); !turn.Settled || turn.Fate != store.FateSilent {
			t.Errorf("settled turn %+v", turn)
		}
	},
	"a message that is tried again keeps its origin": func(t *testing.T, f *fixture) {
		o := originOf(threadA.Thread)
		f.pushed(t, "k", from("origin", o))
		f.routed(t, "m1")
		p := f.pending(t, 1)
		_, err := f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: 1, Key: p.Key, Thread: threadA.Thread, Fate: store.FateDead, Error: "why"})
		ok(t, err)
		for i := range 2 { // killed between the two, it is done again
			e, key, err := f.ResolveTurn(t.Context(), "a", 1, "retried")
			ok(t, err)
			out := f.pushed(t, key+":retry:1", store.NewEvent{Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: e.Content, Origin: f.origin(t, 1)})
			equal(t, "copy", []any{out.IDs, out.Duplicate, out.Origins}, []any{[]int64{2}, i > 0, []*store.Origin{o}})
		}
		equal(t, "route of the copy", f.routed(t, "m2"), []string{threadA.Thread})
	},
	// An origin says who a peer is, and a command quotes its text.
	"what a peer is in its origins is erased": func(t *testing.T, f *fixture) {
		f.pushed(t, "", from("1", originOf("threads/x")), from("2", originOf("threads/y")))
		f.settle(t, 1, 2)
		for range 2 {
			ok(t, f.Erase(t.Context(), inboxA, store.PeerShare{Events: []int64{1}}))
			erased := originOf("threads/x")
			erased.Account, erased.ProviderID, erased.Command = "", "", ""
			equal(t, "erased", f.origin(t, 1), erased)
			equal(t, "other", f.origin(t, 2), originOf("threads/y"))
		}
		f.chained(t, inboxA, 2)
		equal(t, "pushed after it", f.pushed(t, "k", from("3", originOf("threads/x"))).Origins, []*store.Origin{originOf("threads/x")})
	},
}

// nowhere is a route that no event with an origin takes.
func nowhere(t *testing.T) func(thread.Event, string) (string, error) {
	return func(e thread.Event, _ string) (string, error) {
		t.Errorf("asked for the route of event %d", e.ID)
		return "", nil
	}
}

// pending is an event of the inbox of a, to be begun.
func (f *fixture) pending(t *testing.T, id int64) store.Pending {
	t.Helper()
	e, key, err := f.InboxEvent(t.Context(), "a", id)
	ok(t, err)
	return store.Pending{Event: e, Key: key, Origin: f.origin(t, id)}
}
