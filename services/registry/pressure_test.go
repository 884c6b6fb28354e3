package registry_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// full tells that a push was refused for now, with when to come again.
func (w *world) full(what string, err error, reason string) {
	w.Helper()
	if f := fault.From(err); f.Code != codes.ResourceExhausted || f.Reason != reason || f.RetryAfter <= 0 {
		w.Errorf("%s: %v %s, again in %v", what, err, f.Reason, f.RetryAfter)
	}
}

// batch is a push of n messages of a peer at once.
func batch(agent, peer string, n int) *registryv1.PushEventsRequest {
	r := pushRequest(agent, peer, "one of many", "")
	for range n - 1 {
		r.Events = append(r.Events, r.GetEvents()[0])
	}
	return r
}

// Back-pressure for one peer (RELIABILITY section 5): 200 messages may wait, a push
// counts once however many it brings, and other peers feel nothing.
func TestInboxTakes200OfOnePeer(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	w.push("a1", "alice", "among others", "")
	for n := range 199 {
		w.push("a1", "bob", fmt.Sprint(n), "")
	}
	must2(w.threads.PushEvents(t.Context(), batch("a1", "bob", 50)))
	_, err := w.threads.PushEvents(t.Context(), pushRequest("a1", "bob", "too much", ""))
	w.full("one more of bob", err, fault.InboxFull)
	w.push("a1", "alice", "still welcome", "")
	first := w.push("a1", "carol", "kept", "carol-1")
	if again := w.push("a1", "carol", "kept", "carol-1"); !again.GetDuplicate() || again.GetEventIds()[0] != first.GetEventIds()[0] {
		t.Errorf("a repeat is no new message: %v", again)
	}
}

// Back-pressure for an agent: 10,000 messages may wait, of whomever; one that is
// answered makes room for one.
func TestInboxTakes10000(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	w.create("a2")
	for n := range 20 {
		must2(w.threads.PushEvents(t.Context(), batch("a1", fmt.Sprint("peer", n), 500)))
	}
	_, err := w.threads.PushEvents(t.Context(), pushRequest("a1", "newcomer", "too much", ""))
	w.full("number 10,001", err, fault.InboxFull)
	w.work("runner")
	w.push("a1", "newcomer", "in the place of the answered one", "")
	_, err = w.threads.PushEvents(t.Context(), pushRequest("a1", "newcomer", "too much again", ""))
	w.full("number 10,001 again", err, fault.InboxFull)
	w.push("a2", "bob", "another agent feels nothing", "")
	if d := w.due(kindRun, "other", time.Minute); len(d) != 1 {
		t.Errorf("due: %v", d)
	}
}
