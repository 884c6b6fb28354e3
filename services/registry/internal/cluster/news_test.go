package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Who has an agent's lease is told of its news by name, wherever they were pushed; who
// asks again, or does not read them, is told the lease.
func TestNews(t *testing.T) {
	_, w, other := beside(t)
	w.Create("a1")
	ask := func(id string, news bool) *registryv1.AcquireDueLeaseResponse {
		t.Helper()
		r, err := w.Leases.AcquireDueLease(t.Context(), &registryv1.AcquireDueLeaseRequest{
			Kind: backendtest.KindRun, Holder: "r1", RequestId: id, MaxNew: 8, Wait: backendtest.DurationOf(30 * time.Second), Ttl: backendtest.DurationOf(time.Minute), News: news,
		})
		return backendtest.Must(t, r, err)
	}
	held := func(r *registryv1.AcquireDueLeaseResponse, fresh bool) bool {
		return len(r.GetDue()) == 1 && r.GetDue()[0].GetFresh() == fresh && r.GetDue()[0].GetLease().GetToken() == 1 && len(r.GetNews()) == 0
	}
	other.Push("a1", "bob", "0", "")
	if r := ask("first", true); !held(r, true) {
		t.Fatalf("the grant: %v", r)
	}
	for n, by := range []*backendtest.World{w, other} {
		for i := 0; ; i++ { // a look at everything comes in between, when it is time for one
			id := fmt.Sprint("news", n, i)
			by.Push("a1", "bob", id, "")
			r := ask(id, true)
			if len(r.GetDue()) == 0 && len(r.GetNews()) == 1 && r.GetNews()[0] == "a1" {
				if r = ask(id, true); !held(r, false) {
					t.Errorf("asked again: %v", r)
				}
				break
			}
			if !held(r, false) || i == 50 {
				t.Fatalf("news %d: %v", i, r)
			}
		}
		by.Push("a1", "bob", fmt.Sprint("plain", n), "")
		if r := ask(fmt.Sprint("plain", n), false); !held(r, false) {
			t.Errorf("who reads no news: %v", r)
		}
	}
}
