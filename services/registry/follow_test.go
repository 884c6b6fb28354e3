package registry_test

import (
	"context"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

type opened struct {
	r   *registryv1.OpenBatchResponse
	err error
}

// follows makes a batch's call that waits.
func follows(ctx context.Context, w *backendtest.World, agent string, after int64) <-chan opened {
	out := make(chan opened, 1)
	go func() {
		r, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent, AfterId: after, Wait: backendtest.DurationOf(30 * time.Second)})
		out <- opened{r, err}
	}()
	return out
}

// A batch that waits is answered with what is pushed; it is told to nobody else.
func TestBatchFollowsItsInbox(t *testing.T) { backendtest.Each(t, testBatchFollowsItsInbox) }

func testBatchFollowsItsInbox(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	first := w.Push("a1", "bob", "one", "").GetEventIds()[0]
	lease := w.Due(backendtest.KindRun, "r1", time.Minute)[0].GetLease()
	ctx := backendtest.Under(w.Context(), lease)
	if now := <-follows(ctx, w, "a1", 0); now.err != nil || len(now.r.GetEvents()) != 1 {
		t.Fatalf("what is there is answered at once: %v", now)
	}
	answer := follows(ctx, w, "a1", first)
	second := w.Push("a1", "bob", "two", "").GetEventIds()[0]
	got := <-answer
	if got.err != nil || len(got.r.GetEvents()) != 1 || got.r.GetEvents()[0].GetEvent().GetId() != second || got.r.GetScannedId() != second {
		t.Fatalf("%v", got)
	}
}

// What comes while a batch leaves, or after it died, is due again: a wait that is
// ended has lost nothing (RELIABILITY: no message is forgotten).
func TestEndedWaitMakesDue(t *testing.T) { backendtest.Each(t, testEndedWaitMakesDue) }

func testEndedWaitMakesDue(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	last := w.Push("a1", "bob", "one", "").GetEventIds()[0]
	lease := w.Due(backendtest.KindRun, "r1", time.Minute)[0].GetLease()
	for range 20 { // the push meets every part of the ending
		ctx, cancel := context.WithCancel(backendtest.Under(w.Context(), lease))
		answer := follows(ctx, w, "a1", last)
		pushed := make(chan int64, 1)
		go func() { pushed <- w.Push("a1", "bob", "more", "").GetEventIds()[0] }()
		cancel()
		got := <-answer
		id := <-pushed
		if got.err == nil && got.r.GetScannedId() >= id {
			last = id // it had it already
			continue
		}
		due := w.Due(backendtest.KindRun, "r1", time.Minute)
		if len(due) != 1 || due[0].GetHeadId() < id {
			t.Fatalf("event %d is not due: %v", id, due)
		}
		last = id
	}
}

// Without anything new the wait ends by its time, with nothing.
func TestWaitEnds(t *testing.T) { backendtest.Each(t, testWaitEnds) }

func testWaitEnds(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	id := w.Push("a1", "bob", "one", "").GetEventIds()[0]
	ctx := backendtest.Under(w.Context(), w.Due(backendtest.KindRun, "r1", time.Minute)[0].GetLease())
	r, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1", AfterId: id, Wait: backendtest.DurationOf(20 * time.Millisecond)})
	if err != nil || len(r.GetEvents()) != 0 || r.GetScannedId() != id {
		t.Errorf("%v, %v", r, err)
	}
}
