package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

const bob = "external:tui:t:dm:c:bob"

// answered is a message of somebody that was answered, with a failed attempt and a tool on the
// way, and sent.
func (f *fixture) answered(t *testing.T, source, text string) store.Pending {
	t.Helper()
	_, err := f.Append(t.Context(), inboxA, []store.NewEvent{{Source: source, Type: thread.TypeMessage, Content: text}}, store.AppendOptions{})
	ok(t, err)
	b := f.open(t)
	p := b.Events[len(b.Events)-1]
	f.ensure(t)
	_, err = f.Begin(t.Context(), threadA, runner, begin(p))
	ok(t, err)
	_, err = f.Record(t.Context(), threadA, runner, store.Record{Key: p.Key, Failed: &store.FailedTry{Class: "refused", Error: "not " + text}})
	ok(t, err)
	fin := replied(p)
	s := step(1, store.StepTool, "tool:1:1", "", store.StepDone)
	s.Arguments, s.Result = "say "+text, []byte("heard "+text)
	fin.Steps = []store.Step{s}
	done, err := f.Finish(t.Context(), threadA, runner, fin)
	ok(t, err)
	_, err = f.Settle(t.Context(), "a", runner, store.Settlement{InboxID: p.Event.ID, Key: p.Key, Thread: threadA.Thread, Fate: store.FateReplied, OutboxHead: done.OutboxHead})
	ok(t, err)
	return p
}

// deliver sends all that waits.
func (f *fixture) deliver(t *testing.T) {
	t.Helper()
	for range 100 {
		d := f.next(t, store.NextDelivery{})
		if d.Outcome != store.DueSend {
			ok(t, f.MarkOutbox(t.Context(), "a", store.OutboxMark{Thread: threadA.Thread, Acked: d.Acked, Dead: d.Dead}))
			return
		}
		f.sent(t, d.Event.ID, store.OutcomeSent)
	}
	t.Fatal("there is no end of deliveries")
}

// quoting counts what still has the words, in events and in the journal.
func (f *fixture) quoting(t *testing.T, words string, turns ...store.Pending) (n int) {
	t.Helper()
	for _, r := range []store.Ref{inboxA, threadA} {
		for _, e := range f.all(t, r) {
			if strings.Contains(e.Content, words) {
				n++
			}
		}
	}
	for _, p := range turns {
		turn, err := f.Turn(t.Context(), "a", store.TurnQuery{InboxID: p.Event.ID})
		ok(t, err)
		for _, a := range turn.Attempts {
			if strings.Contains(a.Error, words) {
				n++
			}
		}
		for _, s := range turn.Steps {
			if strings.Contains(s.Arguments+string(s.Result), words) {
				n++
			}
		}
	}
	return n
}

func (f *fixture) chained(t *testing.T, r store.Ref, want int64) {
	t.Helper()
	n, err := f.Engine.(interface {
		VerifyChain(ctx context.Context, r store.Ref) (int64, error)
	}).VerifyChain(t.Context(), r)
	ok(t, err)
	equal(t, "chained events of "+r.String(), n, want)
}

var erasures = map[string]func(*testing.T, *fixture){
	"a peer's part is erased, keeps its keys, and the chain holds": func(t *testing.T, f *fixture) {
		one := f.answered(t, bob, "xyzzy 1")
		other := f.answered(t, alice, "plugh")
		two := f.answered(t, bob, "xyzzy 2")
		match := func(e thread.Event) bool { return e.Source == bob }
		waiting, err := f.Share(t.Context(), inboxA, store.PeerQuery{Match: match})
		ok(t, err)
		equal(t, "share of the inbox", []any{waiting.Events, waiting.Turns, waiting.Threads}, []any{[]int64{1, 3}, []string{one.Key, two.Key}, []string{threadA.Thread}})
		f.deliver(t)
		inbox, err := f.Share(t.Context(), inboxA, store.PeerQuery{Match: match})
		ok(t, err)
		talk, err := f.Share(t.Context(), threadA, store.PeerQuery{Turns: inbox.Turns})
		ok(t, err)
		if waiting.Open == 0 || inbox.Open != 0 || talk.Open != 0 || len(talk.Events) < 4 || len(talk.Turns) != 2 {
			t.Fatalf("open %d, then %d and %d; share %+v", waiting.Open, inbox.Open, talk.Open, talk)
		}
		before := [][]thread.Event{f.all(t, inboxA), f.all(t, threadA)}
		if n := f.quoting(t, "xyzzy", one, two); n < 8 {
			t.Fatalf("%d places have the words", n)
		}
		others := f.quoting(t, "plugh", other)
		for range 2 { // a repetition changes nothing
			ok(t, f.Erase(t.Context(), threadA, talk))
			ok(t, f.Erase(t.Context(), inboxA, inbox))
			if n := f.quoting(t, "xyzzy", one, two); n != 0 {
				t.Fatalf("%d places still have the words", n)
			}
			equal(t, "what others have", f.quoting(t, "plugh", other), others)
			f.chained(t, inboxA, int64(len(before[0])))
			f.chained(t, threadA, int64(len(before[1])))
		}
		for i, r := range []store.Ref{inboxA, threadA} {
			for j, e := range f.all(t, r) {
				was := before[i][j]
				if e.Content != was.Content {
					was.Content = store.Erased
				}
				equal(t, "event", e, was)
			}
		}
		for _, p := range []store.Pending{one, two} { // known by the keys that they had
			turn, err := f.Turn(t.Context(), "a", store.TurnQuery{InboxID: p.Event.ID, Key: p.Key})
			ok(t, err)
			equal(t, "turn", []any{turn.Key, turn.Fate, len(turn.Steps)}, []any{p.Key, store.FateReplied, 1})
		}
		again, err := f.Share(t.Context(), inboxA, store.PeerQuery{Match: match})
		ok(t, err)
		equal(t, "share once more", again, inbox)
		f.answered(t, bob, "hello again")
		f.chained(t, inboxA, 4)
		f.chained(t, threadA, int64(len(f.all(t, threadA))))
	},
	"a conversation is erased as a whole": func(t *testing.T, f *fixture) {
		one := f.answered(t, bob, "xyzzy")
		f.deliver(t)
		all, err := f.Share(t.Context(), threadA, store.PeerQuery{Whole: true})
		ok(t, err)
		equal(t, "share", []any{all.Events, all.Turns, all.Open}, []any{ids(f.all(t, threadA)), []string{one.Key}, 0})
		ok(t, f.Erase(t.Context(), threadA, all))
		for _, e := range f.all(t, threadA) {
			equal(t, "content", e.Content, store.Erased)
		}
		f.chained(t, threadA, int64(len(all.Events)))
		rows, err := f.ListDeliveries(t.Context(), threadA, "", 0, 10)
		ok(t, err)
		if len(rows) != 1 || rows[0].State != store.DeliverySent {
			t.Errorf("deliveries %+v", rows)
		}
	},
}
