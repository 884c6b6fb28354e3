package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A batch that waits where other registries are beside gets what is pushed there at
// once, and its dispatch is told nothing of it; what is pushed elsewhere it is told by its
// dispatch.
func TestFollowShared(t *testing.T) {
	_, w, other := beside(t)
	w.Create("a1")
	other.Push("a1", "bob", "0", "")
	lease := w.Granted(backendtest.KindRun, "r1", 30*time.Second, time.Minute)[0].GetLease()
	ctx := backendtest.Under(t.Context(), lease)
	var g errgroup.Group
	read := func(after int64) error { // one more
		r, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1", AfterId: after, Limit: 8, Wait: backendtest.DurationOf(25 * time.Second)})
		if err == nil && (len(r.GetEvents()) != 1 || r.GetScannedId() != after+1) {
			err = fmt.Errorf("read after %d: %v", after, r)
		}
		return err
	}
	for n := range int64(3) {
		backendtest.Must(t, 0, read(2*n)) // the first is there, each other one was pushed between two questions
		g.Go(func() error { return read(2*n + 1) })
		w.Push("a1", "bob", fmt.Sprint("here", n), "")
		backendtest.Must(t, 0, g.Wait())
		w.Push("a1", "bob", fmt.Sprint("between", n), "")
	}
	// Nobody follows at the other one.
	g.Go(func() error {
		r, err := other.Leases.AcquireDueLease(t.Context(), &registryv1.AcquireDueLeaseRequest{
			Kind: backendtest.KindRun, Holder: "r1", RequestId: "q", MaxNew: 8, Wait: backendtest.DurationOf(30 * time.Second), Ttl: backendtest.DurationOf(time.Minute),
		})
		if err == nil && (len(r.GetDue()) != 1 || r.GetDue()[0].GetLease().GetToken() != lease.GetToken()) {
			err = fmt.Errorf("told %v", r)
		}
		return err
	})
	other.Push("a1", "bob", "there", "")
	backendtest.Must(t, 0, g.Wait())
}
