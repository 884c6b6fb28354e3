package storetest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

func conversation(name string) store.Ref { return store.Ref{Agent: "a", Thread: "threads/" + name} }

// keyOf is the session key of a conversation.
func keyOf(r store.Ref) string { return "agent:a:Chat:" + r.Thread }

// arrive pushes a message to a conversation and answers how it is claimed there.
func (f *fixture) arrive(t *testing.T, r store.Ref, text string, s store.BeginSession) store.Begin {
	t.Helper()
	out := f.pushed(t, "", from(text, &store.Origin{Thread: r.Thread, Key: keyOf(r)}))
	f.open(t)
	_, err := f.Ensure(t.Context(), r, "tuple")
	ok(t, err)
	b := begin(f.pending(t, out.IDs[0]))
	s.Key = keyOf(r)
	b.Alone, b.Tail, b.Session = true, 100, &s
	return b
}

// claimed claims.
func (f *fixture) claimed(t *testing.T, r store.Ref, b store.Begin) store.Begun {
	t.Helper()
	out, err := f.Begin(t.Context(), r, runner, b)
	ok(t, err)
	if out.Outcome != store.BeginGo {
		t.Fatalf("begin: outcome %d, want go", out.Outcome)
	}
	if b.Session != nil {
		stored, err := f.Session(t.Context(), r)
		ok(t, err)
		equal(t, "session of the claim", out.Session, stored)
	}
	return out
}

// talk is a message that is answered; what settles it is answered too.
func (f *fixture) talk(t *testing.T, r store.Ref, text string, s store.BeginSession) (store.Begun, store.Settlement) {
	t.Helper()
	b := f.arrive(t, r, text, s)
	begun := f.claimed(t, r, b)
	fin, err := f.Finish(t.Context(), r, runner, store.Finish{Key: b.Key, Fate: store.FateReplied, Reply: "re: " + text, Deliver: true, BootID: "boot"})
	ok(t, err)
	done := store.Settlement{
		InboxID: b.Event.ID, Key: b.Key, Thread: r.Thread, Fate: store.FateReplied, OutboxHead: fin.OutboxHead, Merged: fin.Merged, Session: begun.Session,
	}
	f.settled(t, done)
	return begun, done
}

func (f *fixture) settled(t *testing.T, s store.Settlement) {
	t.Helper()
	_, err := f.Settle(t.Context(), "a", runner, s)
	ok(t, err)
}

// patched changes a session, and the list with it.
func (f *fixture) patched(t *testing.T, r store.Ref, p store.SessionPatch) store.Session {
	t.Helper()
	s, err := f.PatchSession(t.Context(), r, p)
	ok(t, err)
	stored, err := f.Session(t.Context(), r)
	ok(t, err)
	equal(t, "patched session", s, stored)
	ok(t, f.NoteSession(t.Context(), r, s))
	return s
}

// listed answers the threads of a list, each with its messages.
func (f *fixture) listed(t *testing.T, q store.ListSessions) (out []string) {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	list, err := f.ListSessions(t.Context(), "a", q)
	ok(t, err)
	for _, e := range list {
		out = append(out, fmt.Sprint(e.Thread, " ", e.Messages))
	}
	return out
}

func contents(list []thread.Event) (out []string) {
	for _, e := range list {
		out = append(out, e.Content)
	}
	return out
}

func ptr[T any](v T) *T { return &v }

// epochs are the reasons for which the second message of a conversation begins an epoch.
var epochs = []struct {
	name, reason, by string
	begin            func(now time.Time) store.BeginSession
	patch            store.SessionPatch
}{
	{name: "daily", reason: store.EpochDaily, begin: func(now time.Time) store.BeginSession { return store.BeginSession{Before: now.Add(-time.Hour)} }},
	{name: "idle", reason: store.EpochIdle, begin: func(time.Time) store.BeginSession { return store.BeginSession{Idle: time.Hour} }},
	{
		name: "pending", reason: store.EpochReset, by: "owner", begin: func(time.Time) store.BeginSession { return store.BeginSession{} },
		patch: store.SessionPatch{Pending: ptr(store.EpochReset), By: "owner"},
	},
}

var sessions = map[string]func(*testing.T, *fixture){
	"the first claim makes a session": func(t *testing.T, f *fixture) {
		_, err := f.Session(t.Context(), threadA)
		is(t, err, store.ErrNotFound)
		begun, _ := f.talk(t, threadA, "1", store.BeginSession{Before: time.Now(), Idle: time.Nanosecond})
		s := begun.Session
		if s == nil || s.Key != keyOf(threadA) || len(s.Epoch) != 26 || s.EpochFrom != 0 || s.StartedAt.IsZero() || s.Archived || s.Pending != "" {
			t.Errorf("session %+v", s)
		}
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "reply"})
		_, err = f.Session(t.Context(), inboxA)
		is(t, err, store.ErrNoSession)
	},
	"a claim without a session makes none": func(t *testing.T, f *fixture) {
		b := f.arrive(t, threadA, "1", store.BeginSession{})
		b.Session = nil
		equal(t, "session of the claim", f.claimed(t, threadA, b).Session, nil)
		_, err := f.Session(t.Context(), threadA)
		is(t, err, store.ErrNoSession)
		f.settled(t, store.Settlement{InboxID: 1, Key: b.Key, Thread: threadA.Thread, Fate: store.FateSilent})
		equal(t, "list", f.listed(t, store.ListSessions{Archived: true}), nil)
	},
	// An epoch begins before the message, once, and the model sees what is behind it.
	"an epoch begins before the message": func(t *testing.T, f *fixture) {
		for _, c := range epochs {
			r := conversation(c.name)
			first, _ := f.talk(t, r, "old", store.BeginSession{})
			f.pass(t, 2*time.Hour)
			context := thread.SubtypeContext // what others say meanwhile, and starts no turn, keeps no epoch open
			_, err := f.Append(t.Context(), r, []store.NewEvent{{Source: "external:tg:main:group:g:bob", Type: thread.TypeRecord, Subtype: &context, Content: "{}"}}, store.AppendOptions{})
			ok(t, err)
			if c.patch.Pending != nil {
				f.patched(t, r, c.patch)
			}
			b := f.arrive(t, r, "new", c.begin(time.Now()))
			begun := f.claimed(t, r, b)
			events := f.all(t, r)
			equal(t, c.name+": events", kinds(events), []string{"in", "reply", "context", "session", "in"})
			record, s := events[3], begun.Session
			var content map[string]string
			ok(t, json.Unmarshal([]byte(record.Content), &content))
			equal(t, c.name+": record", content, map[string]string{"session_id": s.Epoch, "previous": first.Session.Epoch, "reason": c.reason, "by": c.by})
			if s.Epoch == first.Session.Epoch || s.EpochFrom != record.ID || !s.StartedAt.After(first.Session.StartedAt) && f.Bubble || s.Pending != "" || s.PendingBy != "" {
				t.Errorf("%s: session %+v, before %+v", c.name, s, first.Session)
			}
			equal(t, c.name+": context", contents(begun.Tail), []string{"new"})

			// Killed here: the same claim much later finds its event, and begins no epoch.
			f.pass(t, 48*time.Hour)
			again := f.claimed(t, r, b)
			equal(t, c.name+": session, again", again.Session, s)
			equal(t, c.name+": context, again", contents(again.Tail), []string{"new"})
			equal(t, c.name+": events, again", ids(f.all(t, r)), ids(events))
		}
	},
	// What others said in a group before its first message belongs to its first epoch, however old it is.
	"context begins no epoch": func(t *testing.T, f *fixture) {
		_, err := f.Ensure(t.Context(), threadA, "")
		ok(t, err)
		context := thread.SubtypeContext
		_, err = f.Append(t.Context(), threadA, []store.NewEvent{{Source: "external:tg:main:group:g:bob", Type: thread.TypeRecord, Subtype: &context, Content: "{}"}}, store.AppendOptions{})
		ok(t, err)
		f.pass(t, 2*time.Hour)
		begun, _ := f.talk(t, threadA, "1", store.BeginSession{Before: time.Now(), Idle: time.Hour})
		equal(t, "epoch from", begun.Session.EpochFrom, 0)
		equal(t, "events", kinds(f.all(t, threadA)), []string{"context", "in", "reply"})
	},
	"no epoch begins before its time": func(t *testing.T, f *fixture) {
		first, _ := f.talk(t, threadA, "1", store.BeginSession{})
		f.pass(t, time.Hour)
		second, _ := f.talk(t, threadA, "2", store.BeginSession{Before: time.Now().Add(-2 * time.Hour), Idle: 2 * time.Hour})
		equal(t, "epoch", []any{second.Session.Epoch, second.Session.EpochFrom}, []any{first.Session.Epoch, 0})
		equal(t, "context", contents(second.Tail), []string{"1", "re: 1", "2"})
	},
	"the context of later messages begins with the epoch": func(t *testing.T, f *fixture) {
		f.talk(t, threadA, "1", store.BeginSession{})
		f.talk(t, threadA, "2", store.BeginSession{})
		f.patched(t, threadA, store.SessionPatch{Pending: ptr(store.EpochNew)})
		f.talk(t, threadA, "3", store.BeginSession{})
		begun, _ := f.talk(t, threadA, "4", store.BeginSession{})
		equal(t, "context", contents(begun.Tail), []string{"3", "re: 3", "4"})
		b := f.arrive(t, threadA, "5", store.BeginSession{})
		b.Tail = 2
		equal(t, "short context", contents(f.claimed(t, threadA, b).Tail), []string{"re: 4", "5"})
		b.Tail, b.Turns = 100, 3
		equal(t, "the context from a message of a person on", contents(f.claimed(t, threadA, b).Tail), []string{"3", "re: 3", "4", "re: 4", "5"})
	},
	"the context of a claim may begin with a message of a person": func(t *testing.T, f *fixture) {
		for n := 1; n <= 4; n++ {
			f.talk(t, threadA, strconv.Itoa(n), store.BeginSession{})
		}
		b := f.arrive(t, threadA, "5", store.BeginSession{})
		for _, c := range []struct {
			turns, tail int
			want        []string
		}{
			{1, 100, []string{"4", "re: 4", "5"}}, // of the first claim; those below repeat it
			{1, 100, []string{"4", "re: 4", "5"}},
			{2, 100, []string{"3", "re: 3", "4", "re: 4", "5"}},
			{5, 100, []string{"1", "re: 1", "2", "re: 2", "3", "re: 3", "4", "re: 4", "5"}},
			{3, 4, []string{"re: 3", "4", "re: 4", "5"}},
		} {
			b.Turns, b.Tail = c.turns, c.tail
			equal(t, fmt.Sprintf("%d turns of %d messages", c.turns, c.tail), contents(f.claimed(t, threadA, b).Tail), c.want)
		}
	},
	"a conversation older than sessions gets one": func(t *testing.T, f *fixture) {
		f.reply(t, "old")
		begun, _ := f.talk(t, threadA, "new", store.BeginSession{})
		equal(t, "session", []any{begun.Session.Key, len(begun.Session.Epoch), begun.Session.EpochFrom}, []any{keyOf(threadA), 26, 0})
		equal(t, "context", contents(begun.Tail), []string{"old", "re: old", "new"})
	},
	"a message ends the archive": func(t *testing.T, f *fixture) {
		first, _ := f.talk(t, threadA, "1", store.BeginSession{})
		f.patched(t, threadA, store.SessionPatch{Archived: ptr(true)})
		equal(t, "list", f.listed(t, store.ListSessions{}), nil)
		second, _ := f.talk(t, threadA, "2", store.BeginSession{})
		equal(t, "session", []any{second.Session.Archived, second.Session.Epoch}, []any{false, first.Session.Epoch})
		equal(t, "list after it", f.listed(t, store.ListSessions{}), []string{threadA.Thread + " 2"})
	},
	"a patch changes what it names": func(t *testing.T, f *fixture) {
		_, err := f.PatchSession(t.Context(), threadA, store.SessionPatch{Key: "k"})
		is(t, err, store.ErrNotFound)
		f.ensure(t)
		want := store.Session{Key: "agent:a:main", Model: "m", Title: "t"}
		equal(t, "a new one", f.patched(t, threadA, store.SessionPatch{Key: want.Key, Model: ptr("m"), Title: ptr("t")}), want)
		equal(t, "no change", f.patched(t, threadA, store.SessionPatch{Key: "another"}), want)
		want.Model, want.Thinking, want.Verbose, want.Reasoning, want.QueueMode, want.UsageFooter, want.Elevated = "", "1", "2", "3", "4", "5", "6"
		want.Pending, want.PendingBy, want.Archived = store.EpochNew, "owner", true
		equal(t, "all", f.patched(t, threadA, store.SessionPatch{
			Model: ptr(""), Thinking: ptr("1"), Verbose: ptr("2"), Reasoning: ptr("3"), QueueMode: ptr("4"), UsageFooter: ptr("5"), Elevated: ptr("6"),
			Archived: ptr(true), Pending: ptr(store.EpochNew), By: "owner",
		}), want)
		begun, _ := f.talk(t, threadA, "1", store.BeginSession{})
		want.Pending, want.PendingBy, want.Archived, want.Epoch, want.StartedAt = "", "", false, begun.Session.Epoch, begun.Session.StartedAt
		equal(t, "claimed", begun.Session, want)
		if len(want.Epoch) != 26 || want.StartedAt.IsZero() {
			t.Errorf("session %+v", want)
		}
	},
	"a patch before the first message leaves the epoch to it": func(t *testing.T, f *fixture) {
		f.ensure(t)
		f.patched(t, threadA, store.SessionPatch{Key: keyOf(threadA), Title: ptr("t")})
		begun, _ := f.talk(t, threadA, "1", store.BeginSession{})
		equal(t, "session", []any{begun.Session.Title, len(begun.Session.Epoch), begun.Session.EpochFrom, begun.Session.StartedAt.IsZero()}, []any{"t", 26, 0, false})
		second, _ := f.talk(t, threadA, "2", store.BeginSession{})
		equal(t, "epoch of the next", second.Session.Epoch, begun.Session.Epoch)
	},
	"sessions are listed, the last active first": func(t *testing.T, f *fixture) {
		equal(t, "no sessions", f.listed(t, store.ListSessions{Archived: true}), nil)
		for _, name := range []string{"x", "y", "z", "x", "w"} {
			f.talk(t, conversation(name), "hello", store.BeginSession{})
			f.pass(t, time.Hour)
		}
		all := []string{"threads/w 1", "threads/x 2", "threads/z 1", "threads/y 1"}
		equal(t, "all", f.listed(t, store.ListSessions{}), all)
		list, err := f.ListSessions(t.Context(), "a", store.ListSessions{Limit: 1})
		ok(t, err)
		s, err := f.Session(t.Context(), conversation("w"))
		ok(t, err)
		equal(t, "entry", []any{list[0].Key, list[0].Epoch, list[0].Title, list[0].Archived, list[0].LastAt.IsZero()}, []any{keyOf(conversation("w")), s.Epoch, "", false, false})
		for n := 1; n <= 5; n++ {
			var paged []string
			for q := (store.ListSessions{Limit: n}); ; {
				page, err := f.ListSessions(t.Context(), "a", q)
				ok(t, err)
				if len(page) == 0 {
					break
				}
				for _, e := range page {
					paged = append(paged, fmt.Sprint(e.Thread, " ", e.Messages))
				}
				q.Before, q.BeforeThread = page[len(page)-1].LastAt, page[len(page)-1].Thread
			}
			equal(t, fmt.Sprint("pages of ", n), paged, all)
		}
		// w was active an hour ago, x two, z three.
		equal(t, "since", f.listed(t, store.ListSessions{Since: time.Now().Add(-150 * time.Minute)}), all[:2])
		equal(t, "by its key in lower case", f.listed(t, store.ListSessions{Folded: "agent:a:chat:threads/z"}), all[2:3])
		equal(t, "by a key as it is", f.listed(t, store.ListSessions{Folded: keyOf(conversation("z"))}), nil)
		f.patched(t, conversation("x"), store.SessionPatch{Archived: ptr(true), Title: ptr("old")})
		equal(t, "without the archive", f.listed(t, store.ListSessions{}), []string{all[0], all[2], all[3]})
		equal(t, "with the archive", f.listed(t, store.ListSessions{Archived: true}), all)
		list, err = f.ListSessions(t.Context(), "a", store.ListSessions{Limit: 9, Archived: true, Folded: "agent:a:chat:threads/x"})
		ok(t, err)
		equal(t, "archived entry", []any{len(list), list[0].Title, list[0].Archived}, []any{1, "old", true})
		if other, err := f.ListSessions(t.Context(), "b", store.ListSessions{Limit: 9}); err != nil || len(other) != 0 {
			t.Errorf("sessions of another agent: %+v, %v", other, err)
		}
	},
	"a list that is in another database counts each message once": func(t *testing.T, f *fixture) {
		_, done := f.talk(t, threadA, "1", store.BeginSession{})
		f.settled(t, done) // killed before the answer, it is done again
		equal(t, "settled twice", f.listed(t, store.ListSessions{}), []string{threadA.Thread + " 1"})
		done.Session = nil
		f.settled(t, done)
		equal(t, "and without its session", f.listed(t, store.ListSessions{}), []string{threadA.Thread + " 1"})

		leader := f.arrive(t, threadA, "2", store.BeginSession{})
		member := f.arrive(t, threadA, "3", store.BeginSession{})
		leader.Members = []store.Member{{Event: member.Event, Key: member.Key}}
		begun := f.claimed(t, threadA, leader)
		equal(t, "claimed and not finished", f.listed(t, store.ListSessions{}), []string{threadA.Thread + " 1"})
		fin, err := f.Finish(t.Context(), threadA, runner, store.Finish{Key: leader.Key, Fate: store.FateSilent})
		ok(t, err)
		for range 2 {
			f.settled(t, store.Settlement{InboxID: leader.Event.ID, Key: leader.Key, Thread: threadA.Thread, Fate: store.FateSilent, Merged: fin.Merged, Session: begun.Session})
			equal(t, "with a merged one", f.listed(t, store.ListSessions{}), []string{threadA.Thread + " 3"})
		}
	},
	"messages older than the session are counted with it": func(t *testing.T, f *fixture) {
		for _, text := range []string{"1", "2"} {
			p, _ := f.reply(t, text)
			f.settle(t, p.Event.ID)
		}
		equal(t, "list", f.listed(t, store.ListSessions{}), nil)
		f.patched(t, threadA, store.SessionPatch{Key: keyOf(threadA), Title: ptr("t")})
		equal(t, "list with it", f.listed(t, store.ListSessions{}), []string{threadA.Thread + " 2"})
		f.talk(t, threadA, "3", store.BeginSession{})
		equal(t, "list with another", f.listed(t, store.ListSessions{}), []string{threadA.Thread + " 3"})
	},
	"the title of a peer's own conversation is erased": func(t *testing.T, f *fixture) {
		own, shared := conversation("own"), conversation("shared")
		for _, r := range []store.Ref{own, shared} {
			_, done := f.talk(t, r, "hello", store.BeginSession{})
			s := f.patched(t, r, store.SessionPatch{Title: ptr("Bob"), Model: ptr("m")})
			share, err := f.Share(t.Context(), r, store.PeerQuery{Whole: r == own, Turns: []string{done.Key}})
			ok(t, err)
			if s.Title = "Bob"; r == own {
				s.Title = ""
			}
			for range 2 {
				ok(t, f.Erase(t.Context(), r, share))
				got, err := f.Session(t.Context(), r)
				ok(t, err)
				equal(t, r.Thread, got, s)
				list, err := f.ListSessions(t.Context(), "a", store.ListSessions{Limit: 1, Folded: "agent:a:chat:" + r.Thread})
				ok(t, err)
				equal(t, r.Thread+" in the list", []any{len(list), list[0].Title}, []any{1, s.Title})
			}
		}
	},
}
