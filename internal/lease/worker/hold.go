package worker

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/pause"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Held is a lease that [Hold] acquired, and that is renewed until Release. Context ends, and Check fails, when it is
// no longer to be trusted.
type Held struct {
	*lease.Keeper

	leases Leases
	holder string
	lease  *registrypb.Lease
	log    *slog.Logger
}

// Hold acquires the lease of a request, waits for it while another process has it or the registry cannot be reached,
// and keeps it until ctx ends or Release is called. req names the resource, the holder and the request: calls of one
// process for one resource have the same request id, so that one that lost sight of its lease gets it again. waits is
// called with each refusal, of which holder is the process that has the lease, or empty. The error is the cause of the
// end of ctx.
func Hold(ctx context.Context, leases Leases, req *registrypb.AcquireLeaseRequest, log *slog.Logger, waits func(holder string, err error)) (*Held, error) {
	req = proto.CloneOf(req)
	for failures := 0; ; failures++ {
		sent := time.Now()
		call, cancel := context.WithTimeout(ctx, req.GetWait().AsDuration()+pollMargin)
		r, err := leases.AcquireLease(call, req)
		cancel()
		ttl := r.GetLease().GetTtl().AsDuration()
		switch {
		case err == nil && time.Since(sent) < ttl/3:
			h := &Held{leases: leases, holder: req.GetHolder(), lease: r.GetLease(), log: log}
			h.Keeper = lease.Keep(ctx, h, lease.Grant{Resource: h.lease.GetResource(), Token: h.lease.GetToken(), TTL: ttl, Sent: sent}, lease.Options{OnError: func(err error) {
				log.Debug("lease not renewed", "error", fault.Chain(err))
			}})
			return h, nil
		case err == nil: // after a wait: the trust counts from a new request, which gets the same lease
			req.Wait, failures = nil, 0
			continue
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		f := fault.From(err)
		waits(f.Meta["holder"], err)
		waited := req.GetWait() != nil && time.Since(sent) >= req.GetWait().AsDuration()/2
		req.Wait = nil
		if f.Reason == fault.LeaseHeld {
			req.Wait = durationpb.New(DefaultPoll)
			if failures == 0 || waited {
				failures = 0
				continue
			}
		}
		if pause.For(ctx, backoff.Wait(failures)) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// Renew implements lease.Renewer.
func (h *Held) Renew(ctx context.Context, resource string, token uint64) (lease.RenewReply, error) {
	a, err := renew(ctx, h.leases, resource, h.holder, token)
	if err != nil {
		return lease.RenewReply{}, err
	}
	return lease.RenewReply{TTL: a.GetTtl().AsDuration(), YieldRequested: a.GetYieldRequested()}, nil
}

// Release gives the lease back and ends Context; nothing may go on under it. A call that fails is logged: the lease
// expires then.
func (h *Held) Release() {
	h.Stop()
	if err := release(context.Background(), h.leases, h.lease); err != nil {
		h.log.Warn("lease not released", "resource", h.lease.GetResource(), "fencing_token", h.lease.GetToken(), "error", fault.Chain(err))
	}
}
