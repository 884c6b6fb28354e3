package registry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/services/registry"
)

// Back-pressure for one peer (RELIABILITY section 5): 200 messages may wait, a push
// counts once however many it brings, and other peers feel nothing.
func TestInboxTakes200OfOnePeer(t *testing.T) { backendtest.Each(t, testInboxTakes200OfOnePeer) }

func testInboxTakes200OfOnePeer(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "alice", "among others", "")
	for n := range 199 {
		w.Push("a1", "bob", fmt.Sprint(n), "")
	}
	backendtest.Must2(w.Threads.PushEvents(t.Context(), backendtest.Batch("a1", "bob", 50)))
	_, err := w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a1", "bob", "too much", ""))
	w.Full("one more of bob", err, fault.InboxFull)
	w.Push("a1", "alice", "still welcome", "")
	first := w.Push("a1", "carol", "kept", "carol-1")
	if again := w.Push("a1", "carol", "kept", "carol-1"); !again.GetDuplicate() || again.GetEventIds()[0] != first.GetEventIds()[0] {
		t.Errorf("a repeat is no new message: %v", again)
	}
}

// Back-pressure for an agent: 10,000 messages may wait, of whomever; one that is
// answered makes room for one.
func TestInboxTakes10000(t *testing.T) { backendtest.Each(t, testInboxTakes10000) }

func testInboxTakes10000(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Create("a2")
	for n := range 20 {
		backendtest.Must2(w.Threads.PushEvents(t.Context(), backendtest.Batch("a1", fmt.Sprint("peer", n), 500)))
	}
	_, err := w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a1", "newcomer", "too much", ""))
	w.Full("number 10,001", err, fault.InboxFull)
	w.Work("runner")
	w.Push("a1", "newcomer", "in the place of the answered one", "")
	_, err = w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a1", "newcomer", "too much again", ""))
	w.Full("number 10,001 again", err, fault.InboxFull)
	w.Push("a2", "bob", "another agent feels nothing", "")
	if d := w.Due(backendtest.KindRun, "other", time.Minute); len(d) != 1 {
		t.Errorf("due: %v", d)
	}
}
