package registry_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/audit"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// F7: a lease is acquired, renewed and released by its holder only, and a call under a lease
// is made by its holder's service: every service against the lease of every other one.
func TestALeaseBelongsToItsHolder(t *testing.T) { backendtest.Each(t, testALeaseBelongsToItsHolder) }

func testALeaseBelongsToItsHolder(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	callers := []rpc.Identity{
		{Kind: rpc.Owner},
		{Kind: rpc.Service, Name: "runner"},
		{Kind: rpc.Service, Name: "runner-2"},
		{Kind: rpc.Service, Name: "deliverer"},
		{Kind: rpc.Service, Name: "deliverer-2"},
	}
	for _, h := range callers[1:] {
		kind, res := backendtest.KindRun, lease.AgentResource("a1")
		if h.Role() == "deliverer" {
			kind, res = backendtest.KindDeliver, lease.DeliverResource("a1")
		}
		holder := h.Name + "-" + ulid.Make().String()
		acquire := func(by rpc.Identity) (*registryv1.Lease, error) {
			r, err := w.As(by).Leases.AcquireLease(t.Context(), &registryv1.AcquireLeaseRequest{
				Kind: kind, AgentId: "a1", Holder: holder, RequestId: ulid.Make().String(), Ttl: backendtest.DurationOf(10 * time.Minute),
			})
			return r.GetLease(), err
		}
		l, err := acquire(h)
		if err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
		for _, by := range callers {
			if by == h {
				continue
			}
			refused := func(what string, err error) {
				t.Helper()
				if by.Kind != rpc.Owner && status.Code(err) != codes.PermissionDenied {
					t.Errorf("%s: %s by %s: %v", l.GetHolder(), what, by.Name, err)
				}
			}
			as := w.As(by)
			_, err := acquire(by)
			refused("acquired", err)
			_, err = as.Leases.AcquireDueLease(t.Context(), &registryv1.AcquireDueLeaseRequest{Kind: kind, Holder: holder, RequestId: "r", MaxNew: 1, Wait: backendtest.DurationOf(1)})
			refused("polled", err)
			_, err = as.Leases.RenewLease(t.Context(), &registryv1.RenewLeaseRequest{Resource: res, Token: l.GetToken(), Holder: holder})
			refused("renewed", err)
			ctx := backendtest.Under(t.Context(), l)
			_, err = as.Threads.PushEvents(ctx, &registryv1.PushEventsRequest{
				Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, Events: []*registryv1.NewEvent{{Source: "self", Type: "record", Content: "{}"}},
			})
			refused("pushed under", err)
			_, err = as.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
			refused("turns under", err)
			_, err = as.Deliveries.BeginDelivery(ctx, &registryv1.BeginDeliveryRequest{AgentId: "a1", ThreadId: "threads/main"})
			refused("deliveries under", err)
			if by.Kind != rpc.Owner {
				_, err = as.Leases.ReleaseLease(t.Context(), &registryv1.ReleaseLeaseRequest{Resource: res, Token: l.GetToken()})
				refused("released", err)
			}
		}
		if got := w.Held(res); got.GetToken() != l.GetToken() || got.GetHolder() != holder {
			t.Fatalf("%s has lost its lease: %v", holder, got)
		}
		// What a worker of an earlier build sends: no fence, and no holder in the release.
		own := w.As(h)
		if _, err := own.Leases.RenewLease(t.Context(), &registryv1.RenewLeaseRequest{Resource: res, Token: l.GetToken(), Holder: holder}); err != nil {
			t.Errorf("%s renews its own: %v", h.Name, err)
		}
		own.Release(l)
		own.Release(l) // again: nothing is released, nobody is refused
		if live := leases(t.Context(), w); live != "" {
			t.Fatalf("%s released %s: %s", h.Name, res, live)
		}
	}
	w.Stop()
	refusals := map[string]int{}
	if err := audit.Read(filepath.Join(o.Home, "audit"), func(e audit.Entry) error {
		if e.Outcome == "refused" && strings.HasPrefix(e.Detail, "PERMISSION_DENIED: ") && e.Actor != "" {
			refusals[e.Action+" "+e.Agent]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"AcquireLease a1", "AcquireDueLease ", "RenewLease a1", "ReleaseLease a1"} {
		if refusals[action] == 0 {
			t.Errorf("no refusal of %q is in the audit log: %v", action, refusals)
		}
	}
}

func leases(ctx context.Context, w *backendtest.World) (all string) {
	r, err := w.Leases.ListLeases(ctx, &registryv1.ListLeasesRequest{})
	for _, l := range backendtest.Must(w.T, r, err).GetLeases() {
		all += fmt.Sprintf("%s by %s; ", l.GetResource(), l.GetHolder())
	}
	return all
}
