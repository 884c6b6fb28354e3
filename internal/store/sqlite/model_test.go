package sqlite

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// model drives an engine and keeps what it must have kept.
type model struct {
	e     *Engine
	root  string
	fresh func() string // a new directory
	token uint64

	pushed  int64
	batch   []store.Pending       // the runner's view; a crash forgets it
	begun   map[string]bool       // by key, since the last crash
	fates   map[string]store.Fate // by key: what Finish or exhaustion gave
	thread  map[string]string
	settled map[int64]bool
	sent    map[string]int // by delivery key

	origins  map[int64]string // threads of events that were pushed with one
	epochs   map[string]string
	messages map[string]int64 // settled, by thread
}

var ctx = context.Background()

func (m *model) fence(resource string) store.Fence {
	return store.Fence{Resource: resource, Token: m.token}
}

func (m *model) ref(thread string) store.Ref { return store.Ref{Agent: "a", Thread: thread} }

func (m *model) live(_ string, token uint64) error {
	if token != m.token {
		return store.ErrLeaseLost
	}
	return nil
}

func (m *model) start() {
	m.e = New(Options{Path: layout(m.root), Live: m.live})
	m.token++
	m.batch, m.begun = nil, map[string]bool{}
}

func check(t *rapid.T, err error) {
	if err != nil {
		t.Fatalf("%+v", err)
	}
}

func (m *model) Push(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "n")
	var list []store.NewEvent
	for i := range n {
		typ := rapid.SampledFrom([]string{"message", "message", "message", "record"}).Draw(t, "type")
		list = append(list, store.NewEvent{Source: rapid.SampledFrom([]string{"x", "y", "bad"}).Draw(t, "source"), Type: typ, Content: fmt.Sprint(m.pushed)})
		if rapid.Bool().Draw(t, "origin") {
			to := rapid.SampledFrom([]string{"threads/o", "threads/mx"}).Draw(t, "to")
			list[i].Origin, m.origins[m.pushed+1+int64(i)] = &store.Origin{Thread: to, Key: "key of " + to}, to
		}
	}
	key := fmt.Sprint("push", m.pushed)
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		out, err := m.e.Append(ctx, store.Inbox("a"), list, store.AppendOptions{Key: key})
		check(t, err)
		for i, id := range out.IDs {
			if to := m.origins[id]; (to != "") != (out.Origins[i] != nil) || to != "" && out.Origins[i].Thread != to {
				t.Fatalf("origin of event %d: %+v, want %q", id, out.Origins[i], to)
			}
			list[i].Origin = nil // the first one stands
		}
		if out.IDs[0] != m.pushed+1 || len(out.IDs) != n {
			t.Fatalf("ids %v after %d", out.IDs, m.pushed)
		}
	}
	m.pushed += int64(n)
}

func (m *model) Open(t *rapid.T) {
	b, err := m.e.OpenBatch(ctx, "a", m.fence("agent/a"), store.OpenBatch{
		Limit: 8, Mode: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "mode"),
		Claimed: func(ctx context.Context, e thread.Event, key, mode string) (bool, error) {
			_, ok := m.thread[key]
			return ok, nil
		},
		Route: func(e thread.Event, mode string) (string, error) {
			if e.Source == "bad" {
				return "", fmt.Errorf("no such peer")
			}
			return "threads/" + mode + e.Source, nil
		},
	})
	check(t, err)
	m.batch = b.Events
	open := map[int64]bool{}
	for _, p := range b.Events {
		open[p.Event.ID] = true
		if to := m.origins[p.Event.ID]; (to != "") != (p.Origin != nil) || to != "" && p.Thread != to {
			t.Fatalf("event %d goes to %s, want %q", p.Event.ID, p.Thread, to)
		}
		if was, ok := m.thread[p.Key]; ok && was != p.Thread {
			t.Fatalf("event %d was routed to %s, now to %s", p.Event.ID, was, p.Thread)
		}
	}
	for id := b.Acked + 1; id <= b.Scanned; id++ {
		if open[id] == m.settled[id] {
			if open[id] {
				t.Fatalf("settled event %d is open", id)
			}
			m.settled[id] = true // it was settled here
		}
	}
	for id := int64(1); id <= b.Acked; id++ {
		m.settled[id] = true
	}
	m.ack(t, b.Acked)
}

func (m *model) pick(t *rapid.T) store.Pending {
	if len(m.batch) == 0 {
		t.Skip("nothing open")
	}
	return rapid.SampledFrom(m.batch).Draw(t, "event")
}

func (m *model) Begin(t *rapid.T) {
	p := m.pick(t)
	_, err := m.e.Ensure(ctx, m.ref(p.Thread), "")
	check(t, err)
	b, err := m.e.Begin(ctx, m.ref(p.Thread), m.fence("agent/a"), store.Begin{Event: p.Event, Key: p.Key, Alone: true, Tail: 1, Subscribe: true, Session: &store.BeginSession{Key: "key of " + p.Thread}})
	check(t, err)
	if s := b.Session; b.Outcome == store.BeginGo {
		if was := m.epochs[p.Thread]; s == nil || len(s.Epoch) != 26 || was != "" && s.Epoch != was {
			t.Fatalf("session %+v, its epoch was %q", s, was)
		}
		m.epochs[p.Thread] = s.Epoch
	}
	m.thread[p.Key] = p.Thread
	switch b.Outcome {
	case store.BeginGo:
		if fate := m.fates[p.Key]; fate != "" {
			t.Fatalf("begun again after %s", fate)
		}
		m.begun[p.Key] = true
	case store.BeginFinished:
		if b.Finished.Fate != m.fates[p.Key] {
			t.Fatalf("finished as %s, was %q", b.Finished.Fate, m.fates[p.Key])
		}
	case store.BeginExhausted:
		m.fates[p.Key] = store.FateDead
	default:
		t.Fatalf("outcome %d", b.Outcome)
	}
}

func (m *model) Finish(t *rapid.T) {
	p := m.pick(t)
	if !m.begun[p.Key] {
		t.Skip("not begun")
	}
	want := rapid.SampledFrom([]store.Fate{store.FateReplied, store.FateSilent, store.FateDead, store.FateAborted}).Draw(t, "fate")
	fin, err := m.e.Finish(ctx, m.ref(p.Thread), m.fence("agent/a"), store.Finish{Key: p.Key, Fate: want, Reply: "r", Record: "{}", Error: "e", Deliver: true})
	check(t, err)
	if m.fates[p.Key] == "" {
		m.fates[p.Key] = want
	}
	if fin.Fate != m.fates[p.Key] {
		t.Fatalf("fate %s, want %s", fin.Fate, m.fates[p.Key])
	}
}

func (m *model) Settle(t *rapid.T) {
	p := m.pick(t)
	fate := m.fates[p.Key]
	if fate == "" {
		t.Skip("no fate")
	}
	acked, err := m.e.Settle(ctx, "a", m.fence("agent/a"), store.Settlement{
		InboxID: p.Event.ID, Key: p.Key, Thread: p.Thread, Fate: fate, Session: &store.Session{Key: "key of " + p.Thread, Epoch: m.epochs[p.Thread]},
	})
	check(t, err)
	if !m.settled[p.Event.ID] {
		m.messages[p.Thread]++
	}
	m.settled[p.Event.ID] = true
	m.ack(t, acked)
}

// Check runs after each step.
func (m *model) Check(t *rapid.T) {
	s, err := m.e.State(ctx, "a")
	check(t, err)
	m.ack(t, s.Acked)
	list, err := m.e.ListSessions(ctx, "a", store.ListSessions{Limit: 100})
	check(t, err)
	got := map[string]int64{}
	for _, e := range list {
		if got[e.Thread] = e.Messages; e.Key != "key of "+e.Thread || e.Epoch != m.epochs[e.Thread] {
			t.Fatalf("listed %+v, want epoch %s", e, m.epochs[e.Thread])
		}
	}
	if !maps.Equal(got, m.messages) {
		t.Fatalf("the list counts %v, want %v", got, m.messages)
	}
}

// ack checks I7.
func (m *model) ack(t *rapid.T, got int64) {
	want := int64(0)
	for m.settled[want+1] {
		want++
	}
	if got != want {
		t.Fatalf("acked %d, want %d", got, want)
	}
}

func (m *model) Deliver(t *rapid.T) {
	if len(m.thread) == 0 {
		t.Skip("no thread")
	}
	r := m.ref(rapid.SampledFrom(slices.Sorted(maps.Values(m.thread))).Draw(t, "thread"))
	d, err := m.e.NextDelivery(ctx, r, m.fence("deliver/a"), store.NextDelivery{BootID: "b"})
	check(t, err)
	if d.Outcome != store.DueSend {
		return
	}
	if m.sent[d.Key] > 0 && !d.MaybeDuplicate {
		t.Fatalf("sent again without the flag")
	}
	m.sent[d.Key]++
	if rapid.Bool().Draw(t, "recorded") {
		_, err = m.e.FinishDelivery(ctx, r, m.fence("deliver/a"), store.FinishDelivery{EventID: d.Event.ID, Outcome: store.OutcomeSent})
		check(t, err)
	}
}

// Crash goes on from the files as they are, as after SIGKILL.
func (m *model) Crash(t *rapid.T) {
	to := m.fresh()
	check(t, os.CopyFS(to, os.DirFS(m.root)))
	check(t, m.e.Close())
	m.root = to
	m.start()
}

// P1, I1, I3: whatever happens, each event ends in one fate, and replied means
// exactly one reply.
func TestModel(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := flag.Set("rapid.checks", "20"); err != nil { // each runs on real files
			t.Fatal(err)
		}
	}
	dirs := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{fates: map[string]store.Fate{}, thread: map[string]string{}, settled: map[int64]bool{}, sent: map[string]int{}}
		m.origins, m.epochs, m.messages = map[int64]string{}, map[string]string{}, map[string]int64{}
		m.fresh = func() string { n++; return filepath.Join(dirs, fmt.Sprint(n)) }
		m.root = m.fresh()
		check(rt, os.MkdirAll(filepath.Join(m.root, "a", "inbox"), 0o700))
		_, err := db.Create(filepath.Join(m.root, "a", "inbox"))
		check(rt, err)
		m.start()
		defer func() { _ = m.e.Close() }()
		rt.Repeat(rapid.StateMachineActions(m))
		m.final(rt)
	})
}

func (m *model) final(t *rapid.T) {
	replies := map[string]int{} // by thread
	for key, fate := range m.fates {
		if fate == store.FateReplied {
			replies[m.thread[key]]++
		}
	}
	for _, id := range slices.Compact(slices.Sorted(maps.Values(m.thread))) {
		p, err := m.e.Read(ctx, m.ref(id), store.Query{Limit: 10000})
		check(t, err)
		in, out := 0, 0
		for _, e := range p.Events {
			switch {
			case e.Type != thread.TypeMessage:
			case e.Source == thread.SourceSelf:
				out++
			default:
				in++
			}
		}
		claimed := 0
		for _, th := range m.thread {
			if th == id {
				claimed++
			}
		}
		if out != replies[id] || in != claimed {
			t.Fatalf("%s: %d in, %d out; want %d, %d", id, in, out, claimed, replies[id])
		}
		_, err = m.e.VerifyChain(ctx, m.ref(id))
		check(t, err)
	}
	s, err := m.e.State(ctx, "a")
	check(t, err)
	if s.Head != m.pushed || s.Pending != m.pushed-int64(len(m.settled)) {
		t.Fatalf("head %d, pending %d; pushed %d, settled %d", s.Head, s.Pending, m.pushed, len(m.settled))
	}
	list, err := m.e.ListTurns(ctx, "a", store.ListTurns{Limit: 10000})
	check(t, err)
	for _, l := range list {
		if (l.Fate != "") != m.settled[l.InboxID] || m.fates[l.Key] != "" && l.Fate != "" && l.Fate != m.fates[l.Key] {
			t.Fatalf("event %d has fate %q, want %q", l.InboxID, l.Fate, m.fates[l.Key])
		}
	}
}
