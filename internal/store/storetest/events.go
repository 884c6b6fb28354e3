package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

var events = map[string]func(*testing.T, *fixture){
	// S0-53, S0-54: ids rise from 1, a push is one transaction and is told.
	"append": func(t *testing.T, f *fixture) {
		sub := "x"
		out, err := f.Append(t.Context(), inboxA, []store.NewEvent{msg("1"), {Source: "s", Type: "record", Subtype: &sub, Content: "2 \x00 end"}}, store.AppendOptions{})
		ok(t, err)
		equal(t, "ids", out.IDs, []int64{1, 2})
		got := f.all(t, inboxA)
		equal(t, "read", got, f.commits[0].Events)
		equal(t, "keys, time", []any{out.Keys, out.At}, []any{f.keys(t, out.IDs...), thread.ParseStamp(got[0].CreatedAt)})
		if got[1].Content != "2 \x00 end" || *got[1].Subtype != "x" || got[0].Subtype != nil || thread.ParseStamp(got[0].CreatedAt).IsZero() {
			t.Errorf("stored %+v", got)
		}
		none, err := f.Append(t.Context(), inboxA, nil, store.AppendOptions{})
		ok(t, err)
		equal(t, "an empty push", none.IDs, nil)
	},
	"append to nothing": func(t *testing.T, f *fixture) {
		_, err := f.Append(t.Context(), store.Inbox("nobody"), []store.NewEvent{msg("1")}, store.AppendOptions{})
		is(t, err, store.ErrNotFound)
	},
	"append deduplicates by key": func(t *testing.T, f *fixture) {
		push := func(key string, list ...store.NewEvent) (store.Appended, error) {
			return f.Append(t.Context(), inboxA, list, store.AppendOptions{Key: key})
		}
		first, err := push("k", msg("1"), msg("2"))
		ok(t, err)
		again, err := push("k", msg("1"), msg("2"))
		ok(t, err)
		if !again.Duplicate || first.Duplicate {
			t.Errorf("duplicate: first %v, again %v", first.Duplicate, again.Duplicate)
		}
		again.Duplicate = false
		equal(t, "a repeat", again, first)
		_, err = push("other", msg("1"), msg("2"))
		ok(t, err)
		sub := "x"
		typed := msg("2")
		typed.Subtype = &sub
		for _, reused := range [][]store.NewEvent{{msg("1"), msg("3")}, {msg("1")}, {msg("1"), msg("2"), msg("1")}, {msg("1"), typed}} {
			_, err = push("k", reused...)
			is(t, err, store.ErrKeyReused)
		}
		equal(t, "stored", len(f.all(t, inboxA)), 4)
	},
	// Parts of an album are one event, whichever of them comes again. A part that was stored before keeps its event.
	"append under several keys": func(t *testing.T, f *fixture) {
		push := func(text string, keys ...string) store.Appended {
			out, err := f.Append(t.Context(), inboxA, []store.NewEvent{msg(text)}, store.AppendOptions{Key: keys[0], PartKeys: keys[1:]})
			ok(t, err)
			return out
		}
		push("early", "3")
		album := push("album", "1", "2", "3")
		equal(t, "a repeat", push("album", "1", "2", "3").Duplicate, true)
		for key, want := range map[string]int64{"1": album.IDs[0], "2": album.IDs[0], "3": 1} {
			out, found, err := f.Pushed(t.Context(), inboxA, key)
			ok(t, err)
			equal(t, "event of "+key, []any{out.IDs, found}, []any{[]int64{want}, true})
		}
		_, err := f.Append(t.Context(), inboxA, []store.NewEvent{msg("another")}, store.AppendOptions{Key: "2"})
		is(t, err, store.ErrKeyReused)
		equal(t, "stored", len(f.all(t, inboxA)), 2)
	},
	"one key at once from many": func(t *testing.T, f *fixture) {
		var wg sync.WaitGroup
		fresh := make(chan bool, 32)
		for range 32 {
			wg.Go(func() {
				out, err := f.Append(t.Context(), inboxA, []store.NewEvent{msg("1")}, store.AppendOptions{Key: "k"})
				if err != nil {
					t.Error(err)
				}
				fresh <- !out.Duplicate
			})
		}
		wg.Wait()
		n := 0
		for range 32 {
			if <-fresh {
				n++
			}
		}
		equal(t, "first ones", n, 1)
		equal(t, "stored", len(f.all(t, inboxA)), 1)
	},
	"a full inbox refuses": func(t *testing.T, f *fixture) {
		bob := msg("b")
		bob.Source = "external:tui:t:dm:c:bob"
		push := func(n store.NewEvent) error {
			_, err := f.Append(t.Context(), inboxA, []store.NewEvent{n}, store.AppendOptions{MaxPending: 4, MaxPerPeer: 2})
			return err
		}
		ok(t, push(msg("1")))
		ok(t, push(msg("2")))
		is(t, push(msg("3")), store.ErrPeerFull)
		ok(t, push(bob))
		ok(t, push(bob))
		carol := msg("c")
		carol.Source = "external:tui:t:dm:c:carol"
		is(t, push(carol), store.ErrInboxFull)
		// Behind a gap, too, what has a fate waits no more.
		_, err := f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: 2, Key: "k2", Fate: store.FateSilent})
		ok(t, err)
		ok(t, push(msg("3")))
		equal(t, "stored", len(f.all(t, inboxA)), 5)
	},
	"read pages": func(t *testing.T, f *fixture) {
		for i := range 10 {
			n := msg(fmt.Sprint(i + 1))
			if i%2 == 1 {
				n = said(fmt.Sprint(i + 1))
			}
			_, err := f.Append(t.Context(), inboxA, []store.NewEvent{n}, store.AppendOptions{})
			ok(t, err)
		}
		self, err := filter.Parse("source = 'self'")
		ok(t, err)
		for _, c := range []struct {
			q    store.Query
			want []int64
			more bool
		}{
			{store.Query{Limit: 3}, []int64{1, 2, 3}, true},
			{store.Query{After: 8, Limit: 3}, []int64{9, 10}, false},
			{store.Query{After: 10, Limit: 3}, []int64{}, false},
			{store.Query{After: 99, Limit: 3}, []int64{}, false},
			{store.Query{Limit: 3, Tail: true}, []int64{8, 9, 10}, true},
			{store.Query{Limit: 10, Tail: true}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, false},
			{store.Query{Limit: 3, Upto: 2}, []int64{1, 2}, false},
			{store.Query{Limit: 2, Upto: 5, Tail: true}, []int64{4, 5}, true},
			{store.Query{After: 2, Limit: 2, Filter: self}, []int64{4, 6}, true},
			{store.Query{Limit: 2, Filter: self, Tail: true, Upto: 7}, []int64{4, 6}, true},
		} {
			p, err := f.Read(t.Context(), inboxA, c.q)
			ok(t, err)
			equal(t, fmt.Sprintf("%+v", c.q), []any{ids(p.Events), p.More, p.Head}, []any{c.want, c.more, 10})
		}
	},
	// An answer stops at 3 MiB and holds at least one event.
	"read stops at the bound of an answer": func(t *testing.T, f *fixture) {
		big := strings.Repeat("x", thread.MaxEvent-200)
		for range 4 {
			f.push(t, big)
		}
		for _, c := range []struct {
			q    store.Query
			want []int64
		}{
			{store.Query{Limit: 10}, []int64{1, 2, 3}},
			{store.Query{Limit: 10, Tail: true}, []int64{2, 3, 4}},
			{store.Query{Limit: 10, MaxBytes: 1}, []int64{1}},
		} {
			p, err := f.Read(t.Context(), inboxA, c.q)
			ok(t, err)
			equal(t, fmt.Sprintf("%+v", c.q), []any{ids(p.Events), p.More}, []any{c.want, true})
		}
	},
	// S0-59, S0-60, S0-63.
	"subscriptions": func(t *testing.T, f *fixture) {
		flt := "type = 'message'"
		ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: "c", Handler: "h", Filter: &flt}))
		is(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: "c", Handler: "other"}), store.ErrConsumerExists)
		f.push(t, "1", "2")
		_, err := f.Ack(t.Context(), inboxA, "c", 2, true)
		ok(t, err)
		in, err := f.Info(t.Context(), inboxA)
		ok(t, err)
		if len(in.Subscriptions) != 1 || in.Subscriptions[0].Handler != "h" || *in.Subscriptions[0].Filter != flt || in.Subscriptions[0].Acked != 2 || in.Subscriptions[0].UpdatedAt == "" {
			t.Errorf("subscriptions %+v", in.Subscriptions)
		}
		subs, err := f.Subscriptions(t.Context(), inboxA)
		ok(t, err)
		equal(t, "the same alone", subs, in.Subscriptions)
		if in.Count != 2 || in.Head != 2 || in.UUID == "" || in.LastAt == "" {
			t.Errorf("info %+v", in)
		}
		ok(t, f.Unsubscribe(t.Context(), inboxA, "c"))
		is(t, f.Unsubscribe(t.Context(), inboxA, "c"), store.ErrNoConsumer)
		_, err = f.Ack(t.Context(), inboxA, "c", 1, false)
		is(t, err, store.ErrNoConsumer)
		// The progress outlives the subscription.
		ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: "c"}))
		in, err = f.Info(t.Context(), inboxA)
		ok(t, err)
		equal(t, "progress", in.Subscriptions[0].Acked, 2)
	},
	// S0-56: a pop moves a consumer anywhere; ours do not follow.
	"acks": func(t *testing.T, f *fixture) {
		for _, c := range []string{"c", thread.Inbox} {
			ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: c}))
			for _, step := range []struct {
				id      int64
				forward bool
				want    int64
			}{{5, false, 5}, {3, true, 5}, {3, false, 3}, {7, true, 7}, {99, false, 99}} {
				got, err := f.Ack(t.Context(), inboxA, c, step.id, step.forward)
				ok(t, err)
				equal(t, "ack", got, step.want)
			}
		}
		f.push(t, "1", "2")
		s, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "acked, pending", []int64{s.Acked, s.Pending}, []int64{0, 2})
		equal(t, "open", len(f.open(t).Events), 2)
	},
	// S0-56, S0-69: of ours a reader is shown the last pop from outside until our next ack,
	// by which alone a forward pop goes on, and an ack that moves nothing hides nothing.
	"a pop from outside shows until our next ack": func(t *testing.T, f *fixture) {
		ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: thread.Inbox}))
		last := ""
		shown := func(what string, want int64, moved bool) {
			t.Helper()
			in, err := f.Info(t.Context(), inboxA)
			ok(t, err)
			equal(t, what, in.Subscriptions[0].Acked, want)
			if at := in.Subscriptions[0].UpdatedAt; !moved && at != last || moved && (at == "" || at < last) {
				t.Errorf("%s: of %q, before %q", what, at, last)
			}
			last = in.Subscriptions[0].UpdatedAt
		}
		pop := func(id int64, forward bool, want int64) {
			t.Helper()
			got, err := f.Ack(t.Context(), inboxA, thread.Inbox, id, forward)
			ok(t, err)
			equal(t, "popped", got, want)
		}
		f.push(t, "1", "2", "3", "4", "5")
		shown("nothing yet", 0, false)
		pop(9, false, 9)
		shown("popped before any ack", 9, true)
		f.settle(t, 3)
		shown("an ack that moves nothing", 9, false)
		f.settle(t, 1)
		shown("acked", 1, true)
		pop(1, true, 1)
		shown("popped to where it stands", 1, false)
		pop(0, false, 0)
		shown("popped back", 0, true)
		pop(4, true, 4)
		shown("popped forward from there", 4, true)
		ok(t, f.Unsubscribe(t.Context(), inboxA, thread.Inbox))
		ok(t, f.Subscribe(t.Context(), inboxA, store.Subscription{Consumer: thread.Inbox}))
		shown("without a subscription meanwhile", 4, false)
		f.settle(t, 2)
		shown("acked behind where it was popped to", 3, true)
		pop(5, true, 5)
		f.settle(t, 4)
		shown("acked again", 4, true)
		s, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "ours", s.Acked, 4)
	},
	"ensure makes a thread once": func(t *testing.T, f *fixture) {
		var wg sync.WaitGroup
		made := make(chan bool, 32)
		for range 32 {
			wg.Go(func() {
				created, err := f.Ensure(t.Context(), threadA, "tuple")
				if err != nil {
					t.Error(err)
				}
				if _, err := f.Append(t.Context(), threadA, []store.NewEvent{msg("1")}, store.AppendOptions{}); err != nil {
					t.Error(err)
				}
				made <- created
			})
		}
		wg.Wait()
		n := 0
		for range 32 {
			if <-made {
				n++
			}
		}
		equal(t, "created", n, 1)
		equal(t, "stored", len(f.all(t, threadA)), 32)
	},
	"closed": func(t *testing.T, f *fixture) {
		f.push(t, "1")
		ok(t, f.Close())
		_, err := f.Append(t.Context(), inboxA, []store.NewEvent{msg("1")}, store.AppendOptions{})
		is(t, err, store.ErrClosed)
	},
}
