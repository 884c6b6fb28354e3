// Package leases implements LeaseService: a worker waits for agents with work, gets them
// under a lease, and renews and releases it.
//
// It promises that an agent is never leased while a foreign program holds its run.lock,
// that the repeat of a call whose response was lost gets the same leases, that a lease ends
// at its time or with its holder's process, and that the work it leaves becomes due again.
// Package lease defines what a lease is.
package leases

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	defaultWait = 25 * time.Second
	maxWait     = time.Minute
	minTTL      = 100 * time.Millisecond
	maxTTL      = 10 * time.Minute
)

// Agents returns agents whose inbox has been read.
type Agents interface {
	Agent(ctx context.Context, id string) (*state.Agent, error)
}

// Leases grants and checks leases; see lease/authority.
type Leases interface {
	Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Record, error)
	Renew(ctx context.Context, resource, holder string, token uint64) (lease.Record, error)
	// Release gives a lease back. Turns that had not ended are no crashes then.
	Release(ctx context.Context, resource string, token uint64) error
	Get(ctx context.Context, resource string) (lease.Record, bool, error)
	List(ctx context.Context, after string, limit int) ([]lease.Record, error)
	Reaper
}

// Reaper ends expired leases.
type Reaper interface {
	// Reap ends the terms that are over and returns each once; next is when to call it
	// again.
	Reap(ctx context.Context) (ended []lease.Record, next time.Duration, err error)
	// Changed receives when it is to be called earlier.
	Changed() <-chan struct{}
}

// Due offers agents with work.
type Due interface {
	// Next waits for agents with work and leases them to the caller.
	Next(ctx context.Context, q dispatch.Request) (dispatch.Answer, error)
	// Ended makes the work of an agent due whose lease has ended.
	Ended(ctx context.Context, agent string)
}

// Aborts holds the runs that people want to end.
type Aborts interface {
	Add(resource string, token uint64, run string)
	Of(resource string, token uint64) (runs []string)
}

// Wakes notifies the calls that wait for a grant, the end of a lease, or a fate.
type Wakes interface {
	AwaitFate(agent string) (woken <-chan struct{}, done func())
	// AwaitLease and LeaseEnded are for the end of a lease that is of no agent.
	AwaitLease(resource string) (woken <-chan struct{}, done func())
	LeaseEnded(resource string)
	Again() <-chan time.Time
}

// Turns reads turns.
type Turns interface {
	Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Agents   Agents
	Leases   Leases
	Due      Due
	Aborts   Aborts
	Wakes    Wakes
	Turns    Turns
	AgentLog wire.Log
	Log      *slog.Logger
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedLeaseServiceServer
	Deps
}

// New returns the service. Run must run for leases to end.
func New(d Deps) *Service { return &Service{Deps: d} }

func resource(kind registryv1.LeaseKind, agentID string) string {
	if kind == registryv1.LeaseKind_LEASE_KIND_DELIVER {
		return lease.DeliverResource(agentID)
	}
	return lease.AgentResource(agentID)
}

func ttlOf(d *durationpb.Duration) time.Duration {
	if d.AsDuration() <= 0 {
		return lease.DefaultTTL
	}
	return min(max(d.AsDuration(), minTTL), maxTTL)
}

// AcquireLease grants one resource.
func (s *Service) AcquireLease(ctx context.Context, req *registryv1.AcquireLeaseRequest) (*registryv1.AcquireLeaseResponse, error) {
	if (req.GetKind() == registryv1.LeaseKind_LEASE_KIND_CHANNEL) != (req.GetAgentId() == "") || (req.GetAgentId() == "") != (req.GetAccount() != "") {
		return nil, wire.Bad("a lease is of an agent or of a channel account", "give one of agent_id and account, as the kind says")
	}
	if req.GetAccount() != "" {
		return s.acquireAccount(ctx, req)
	}
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	r := resource(req.GetKind(), a.ID)
	if err := wire.CheckHolder(ctx, r, req.GetHolder()); err != nil {
		return nil, err
	}
	rec, err := s.Leases.Acquire(ctx, lease.AcquireRequest{
		Resource: r, Holder: req.GetHolder(), Address: req.GetAddress(), RequestID: req.GetRequestId(), TTL: ttlOf(req.GetTtl()), Floor: a.Fence(r),
	})
	if err != nil {
		err = s.Fault(a.ID, "", err)
		if f := fault.From(err); f.Reason == fault.LeaseHeld && f.Meta["holder"] != req.GetHolder() {
			wire.LogAgent(s.AgentLog, a.ID, skipped(req.GetKind())+f.What) // somebody asked for a batch by hand, or a dispatcher did
		}
		return nil, err
	}
	return &registryv1.AcquireLeaseResponse{Lease: toLease(rec, true)}, nil
}

// skipped begins the line of agent.log about a batch that was not begun (S0-139).
func skipped(kind registryv1.LeaseKind) string {
	if kind == registryv1.LeaseKind_LEASE_KIND_DELIVER {
		return "outbound: skipped, lock held: "
	}
	return "run: skipped, lock held: "
}

func toLease(r lease.Record, live bool) *registryv1.Lease {
	return &registryv1.Lease{
		Resource: r.Resource, Token: r.Token, Holder: r.Holder, Address: r.Address,
		Ttl: durationpb.New(r.TTL), ExpiresAt: timestamppb.New(r.Expires), Live: live,
	}
}

// RenewLease extends a current lease.
func (s *Service) RenewLease(ctx context.Context, req *registryv1.RenewLeaseRequest) (*registryv1.RenewLeaseResponse, error) {
	if err := wire.CheckHolder(ctx, req.GetResource(), req.GetHolder()); err != nil {
		return nil, err
	}
	rec, err := s.Leases.Renew(ctx, req.GetResource(), req.GetHolder(), req.GetToken())
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	return &registryv1.RenewLeaseResponse{Ttl: durationpb.New(rec.TTL), YieldRequested: rec.YieldRequested, AbortRunIds: s.Aborts.Of(req.GetResource(), req.GetToken())}, nil
}

// ReleaseLease gives a lease back. Turns that had not ended are no crashes then,
// and work that is left becomes due again.
func (s *Service) ReleaseLease(ctx context.Context, req *registryv1.ReleaseLeaseRequest) (*registryv1.ReleaseLeaseResponse, error) {
	id := lease.AgentOf(req.GetResource())
	if err := s.checkRelease(ctx, req); err != nil {
		return nil, err
	}
	// One that was taken over meanwhile is as good as given back.
	if err := s.Leases.Release(ctx, req.GetResource(), req.GetToken()); err != nil && !errors.Is(err, lease.ErrLost) {
		return nil, s.Fault(id, "", err)
	}
	s.ended(ctx, req.GetResource())
	return &registryv1.ReleaseLeaseResponse{}, nil
}

// checkRelease returns an error unless the caller is the service of the lease's holder. Of a
// lease that is no longer current the holder need not be known: nothing is released then.
func (s *Service) checkRelease(ctx context.Context, req *registryv1.ReleaseLeaseRequest) error {
	if err := wire.CheckRole(ctx, req.GetResource()); err != nil {
		return err
	}
	if id, _ := rpc.IdentityFrom(ctx); id.Kind == rpc.Owner {
		return nil
	}
	rec, _, err := s.Leases.Get(ctx, req.GetResource())
	if err != nil {
		return s.Fault(lease.AgentOf(req.GetResource()), "", err)
	}
	if rec.Token != req.GetToken() {
		return nil
	}
	return wire.CheckHolder(ctx, req.GetResource(), rec.Holder)
}

// ListLeases returns the live leases.
func (s *Service) ListLeases(ctx context.Context, req *registryv1.ListLeasesRequest) (*registryv1.ListLeasesResponse, error) {
	size := min(wire.Limit(req.GetPageSize(), 1000), 1000)
	page, err := s.Leases.List(ctx, req.GetPageToken(), size+1)
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	out := &registryv1.ListLeasesResponse{}
	for i, r := range page {
		if i == size {
			out.NextPageToken = page[size-1].Resource
			break
		}
		out.Leases = append(out.Leases, toLease(r, true))
	}
	return out, nil
}
