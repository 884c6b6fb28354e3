package registry_test

import (
	"context"
	"testing"
	"time"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

type opened struct {
	r   *registryv1.OpenBatchResponse
	err error
}

// follows makes a batch's call that waits.
func (w *world) follows(ctx context.Context, agent string, after int64) <-chan opened {
	out := make(chan opened, 1)
	go func() {
		r, err := w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent, AfterId: after, Wait: durationOf(30 * time.Second)})
		out <- opened{r, err}
	}()
	return out
}

// A batch that waits is answered with what is pushed; it is told to nobody else.
func TestBatchFollowsItsInbox(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	first := w.push("a1", "bob", "one", "").GetEventIds()[0]
	lease := w.due(kindRun, "r1", time.Minute)[0].GetLease()
	ctx := under(w.Context(), lease)
	if now := <-w.follows(ctx, "a1", 0); now.err != nil || len(now.r.GetEvents()) != 1 {
		t.Fatalf("what is there is answered at once: %v", now)
	}
	answer := w.follows(ctx, "a1", first)
	second := w.push("a1", "bob", "two", "").GetEventIds()[0]
	got := <-answer
	if got.err != nil || len(got.r.GetEvents()) != 1 || got.r.GetEvents()[0].GetEvent().GetId() != second || got.r.GetScannedId() != second {
		t.Fatalf("%v", got)
	}
}

// What comes while a batch leaves, or after it died, is due again: a wait that is
// ended has lost nothing (RELIABILITY: no message is forgotten).
func TestEndedWaitMakesDue(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	last := w.push("a1", "bob", "one", "").GetEventIds()[0]
	lease := w.due(kindRun, "r1", time.Minute)[0].GetLease()
	for range 20 { // the push meets every part of the ending
		ctx, cancel := context.WithCancel(under(w.Context(), lease))
		answer := w.follows(ctx, "a1", last)
		pushed := make(chan int64, 1)
		go func() { pushed <- w.push("a1", "bob", "more", "").GetEventIds()[0] }()
		cancel()
		got := <-answer
		id := <-pushed
		if got.err == nil && got.r.GetScannedId() >= id {
			last = id // it had it already
			continue
		}
		due := w.due(kindRun, "r1", time.Minute)
		if len(due) != 1 || due[0].GetHeadId() < id {
			t.Fatalf("event %d is not due: %v", id, due)
		}
		last = id
	}
}

// Without anything new the wait ends by its time, with nothing.
func TestWaitEnds(t *testing.T) {
	w := newWorld(t, t.TempDir(), registry.Config{})
	w.create("a1")
	id := w.push("a1", "bob", "one", "").GetEventIds()[0]
	ctx := under(w.Context(), w.due(kindRun, "r1", time.Minute)[0].GetLease())
	r, err := w.turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1", AfterId: id, Wait: durationOf(20 * time.Millisecond)})
	if err != nil || len(r.GetEvents()) != 0 || r.GetScannedId() != id {
		t.Errorf("%v, %v", r, err)
	}
}
