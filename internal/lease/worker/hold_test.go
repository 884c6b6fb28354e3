package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/worker"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// hold acquires the lease of an account, and returns it with what was said while it waited.
func hold(ctx context.Context, d *desk) (h *worker.Held, waits []string, err error) {
	req := &pb.AcquireLeaseRequest{Kind: pb.LeaseKind_LEASE_KIND_CHANNEL, Account: "tg", Holder: "h1", RequestId: "receive"}
	h, err = worker.Hold(ctx, d, req, slog.New(slog.DiscardHandler), func(holder string, err error) {
		waits = append(waits, holder+" "+fault.From(err).Reason)
	})
	return h, waits, err
}

// A lease that is free costs one call; it is renewed until it is given back, with one call.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{acquire: func() (*pb.AcquireLeaseResponse, error) { return &pb.AcquireLeaseResponse{Lease: grant(7)}, nil }}
		h, waits, err := hold(t.Context(), d)
		if err != nil || len(waits) != 0 || len(d.asked) != 1 || d.asked[0].GetWait() != nil {
			t.Fatalf("%v, %v, %v", err, waits, d.asked)
		}
		time.Sleep(59 * time.Second)
		if err := h.Check(); err != nil || d.renewals() != 11 {
			t.Errorf("%v after %d renewals", err, d.renewals())
		}
		h.Release()
		if got := d.gone(); !slices.Equal(got, []uint64{7}) || h.Context().Err() == nil {
			t.Errorf("given back %v", got)
		}
	})
}

// A lease that another process has is waited for at the registry, one that cannot be reached is asked again. A grant
// that was waited for long is asked for once more, before it is trusted.
func TestHoldWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		d.acquire = func() (*pb.AcquireLeaseResponse, error) {
			switch len(d.asked) {
			case 1, 3:
				held := fault.New(codes.FailedPrecondition, fault.LeaseHeld, "held", "wait")
				held.Meta = map[string]string{"holder": "h2"}
				if len(d.asked) == 3 {
					time.Sleep(worker.DefaultPoll)
				}
				return nil, held
			case 2:
				return nil, fault.New(codes.Unavailable, fault.RegistryUnavailable, "away", "")
			case 4:
				time.Sleep(20 * time.Second)
			}
			return &pb.AcquireLeaseResponse{Lease: grant(8)}, nil
		}
		h, waits, err := hold(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release()
		if want := []string{"h2 LEASE_HELD", " REGISTRY_UNAVAILABLE", "h2 LEASE_HELD"}; !slices.Equal(waits, want) {
			t.Errorf("waits %q", waits)
		}
		var long []bool
		for _, q := range d.asked {
			long = append(long, q.GetWait() != nil)
		}
		if want := []bool{false, true, false, true, false}; !slices.Equal(long, want) {
			t.Errorf("waited %v", long)
		}
		if err := h.Check(); err != nil || len(d.gone()) != 0 {
			t.Errorf("%v %v", err, d.gone())
		}
	})
}

// A lease that is lost ends the work; the end of the context ends the wait.
func TestHoldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{acquire: func() (*pb.AcquireLeaseResponse, error) { return &pb.AcquireLeaseResponse{Lease: grant(7)}, nil }}
		d.renewErr = fault.New(codes.Aborted, fault.LeaseLost, "lost", "")
		h, _, err := hold(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		<-h.Context().Done()
		if err := context.Cause(h.Context()); !errors.Is(err, lease.ErrLost) || !errors.Is(h.Check(), lease.ErrLost) {
			t.Errorf("ended by %v", err)
		}
		h.Release()
		d.acquire = func() (*pb.AcquireLeaseResponse, error) {
			return nil, fault.New(codes.Unavailable, fault.RegistryUnavailable, "away", "")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, waits, err := hold(ctx, d); !errors.Is(err, context.DeadlineExceeded) || len(waits) < 10 || len(waits) > 500 {
			t.Errorf("%v after %d calls", err, len(waits))
		}
	})
}
