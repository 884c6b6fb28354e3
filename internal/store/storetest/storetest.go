// Package storetest tests that a storage engine keeps the promises of the contract in
// package store, through the contract alone. Every engine passes this suite.
//
// It knows no engine. An engine whose waiting is all Go's own (channels, timers)
// runs each test in a synctest bubble, where the waits of the contract take no
// time; another one makes what it has stored older instead. Nothing here sleeps
// outside of a bubble.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Options of the engine under test.
type Options struct {
	// Live is the lease table.
	Live func(resource string, token uint64) error
	// OnCommit receives visible events.
	OnCommit func(store.Commit)
}

// A Suite is how to test an engine.
type Suite struct {
	// New makes an engine with the inbox of the agents "a" and "b"; the suite closes it.
	New func(t *testing.T, o Options) store.Engine
	// Bubble reports that the engine works under synctest.
	Bubble bool
	// Pass is for one that does not: it makes all that e has stored older by d.
	Pass func(t *testing.T, e store.Engine, d time.Duration)
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	for _, group := range []map[string]func(*testing.T, *fixture){events, fences, batches, turns, members, memories, sends, says, accounts, erasures, origins, sessions, processes, media} {
		for _, name := range slices.Sorted(maps.Keys(group)) {
			t.Run(name, func(t *testing.T) {
				if s.Bubble {
					synctest.Test(t, func(t *testing.T) { group[name](t, newFixture(t, s)) })
				} else {
					group[name](t, newFixture(t, s))
				}
			})
		}
	}
}

// fixture is an engine with a lease table whose every token from 1 is live until
// it is revoked.
type fixture struct {
	store.Engine
	Suite

	mu      sync.Mutex
	revoked map[string]uint64 // tokens up to it
	commits []store.Commit
}

func newFixture(t *testing.T, s Suite) *fixture {
	f := &fixture{Suite: s, revoked: map[string]uint64{}}
	f.Engine = s.New(t, Options{Live: f.live, OnCommit: f.committed})
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return f
}

// pass lets time pass.
func (f *fixture) pass(t *testing.T, d time.Duration) {
	t.Helper()
	if f.Bubble {
		time.Sleep(d)
		return
	}
	f.Pass(t, f.Engine, d)
}

// lasted compares what took want in a bubble, and elsewhere as long as the test runs
// longer.
func (f *fixture) lasted(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want || got > want+time.Minute || f.Bubble && got != want {
		t.Errorf("%s %v, want %v", what, got, want)
	}
}

func (f *fixture) live(resource string, token uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token <= f.revoked[resource] {
		return errors.New("not the current token")
	}
	return nil
}

func (f *fixture) revoke(resource string, token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revoked[resource] = token
}

func (f *fixture) committed(c store.Commit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits = append(f.commits, c)
}

// Who acts, and where.
var (
	inboxA  = store.Inbox("a")
	threadA = store.Ref{Agent: "a", Thread: "threads/x"}
	runner  = store.Fence{Resource: "agent/a", Token: 1}
	sender  = store.Fence{Resource: "deliver/a", Token: 1}
)

const alice = "external:tui:t:dm:c:alice"

func msg(text string) store.NewEvent {
	return store.NewEvent{Source: alice, Type: thread.TypeMessage, Content: text}
}

func said(text string) store.NewEvent {
	return store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeMessage, Content: text}
}

// push appends messages to the inbox of a and answers them as stored.
func (f *fixture) push(t *testing.T, texts ...string) []thread.Event {
	t.Helper()
	var in []store.NewEvent
	for _, s := range texts {
		in = append(in, msg(s))
	}
	out, err := f.Append(t.Context(), inboxA, in, store.AppendOptions{})
	ok(t, err)
	p, err := f.Read(t.Context(), inboxA, store.Query{After: out.IDs[0] - 1, Limit: len(in)})
	ok(t, err)
	return p.Events
}

// keys are those of events in the inbox of a.
func (f *fixture) keys(t *testing.T, ids ...int64) (out []string) {
	t.Helper()
	for _, id := range ids {
		_, key, err := f.InboxEvent(t.Context(), "a", id)
		ok(t, err)
		out = append(out, key)
	}
	return out
}

// open opens a batch of everything into one thread.
func (f *fixture) open(t *testing.T) store.Batch {
	t.Helper()
	b, err := f.OpenBatch(t.Context(), "a", runner, batch("m1"))
	ok(t, err)
	return b
}

func batch(mode string) store.OpenBatch {
	return store.OpenBatch{
		Limit: 100, Mode: mode,
		Claimed: func(context.Context, thread.Event, string, string) (bool, error) { return false, nil },
		Route:   func(thread.Event, string) (string, error) { return threadA.Thread, nil },
	}
}

// claim pushes one message and begins it.
func (f *fixture) claim(t *testing.T, text string) (store.Pending, store.Begun) {
	t.Helper()
	f.push(t, text)
	b := f.open(t)
	p := b.Events[len(b.Events)-1]
	f.ensure(t)
	begun, err := f.Begin(t.Context(), threadA, runner, begin(p))
	ok(t, err)
	if begun.Outcome != store.BeginGo {
		t.Fatalf("begin: outcome %d, want go", begun.Outcome)
	}
	return p, begun
}

func (f *fixture) ensure(t *testing.T) {
	t.Helper()
	_, err := f.Ensure(t.Context(), threadA, "tuple")
	ok(t, err)
}

func begin(p store.Pending) store.Begin {
	return store.Begin{Event: p.Event, Key: p.Key, ReplyContext: "{}", Tail: 3, Subscribe: true, Handler: "deliver"}
}

// reply claims a message and answers it; the reply waits for delivery.
func (f *fixture) reply(t *testing.T, text string) (store.Pending, store.Finished) {
	t.Helper()
	p, _ := f.claim(t, text)
	fin, err := f.Finish(t.Context(), threadA, runner, replied(p))
	ok(t, err)
	return p, fin
}

func replied(p store.Pending) store.Finish {
	return store.Finish{Key: p.Key, Fate: store.FateReplied, Reply: "re: " + p.Event.Content, Deliver: true, BootID: "boot"}
}

// all reads a whole thread.
func (f *fixture) all(t *testing.T, r store.Ref) []thread.Event {
	t.Helper()
	p, err := f.Read(t.Context(), r, store.Query{Limit: 10000})
	ok(t, err)
	return p.Events
}

// kinds is what stands in a thread, one word per event.
func kinds(list []thread.Event) []string {
	var out []string
	for _, e := range list {
		switch {
		case e.Subtype != nil:
			out = append(out, *e.Subtype)
		case e.Source == thread.SourceSelf:
			out = append(out, "reply")
		default:
			out = append(out, "in")
		}
	}
	return out
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

// equal compares what prints the same as JSON.
func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	g, errG := json.Marshal(got)
	w, errW := json.Marshal(want)
	if err := errors.Join(errG, errW); err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func ids(list []thread.Event) []int64 {
	out := []int64{}
	for _, e := range list {
		out = append(out, e.ID)
	}
	return out
}

func step(n int, kind, key, class, state string) store.Step {
	return store.Step{Seq: n, Kind: kind, Key: key, Class: class, State: state, Name: "n", CallID: fmt.Sprint("c", n), RequestSHA256: []byte{1}}
}
