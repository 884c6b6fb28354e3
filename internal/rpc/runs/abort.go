package runs

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/runs/wording"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const (
	// abortWait is how long an abort waits for who has the run.
	abortWait = 30 * time.Second
	// ours is how long the lease lasts under which an abort is committed: it ends with
	// the call, and by itself when the caller dies in it.
	ours = 5 * time.Second
	// retell is when a wish that a registry passes on is told again: it may be lost with
	// the registry, or be for a lease that another runner has taken over.
	retell = 5 * time.Second
)

// AbortRun ends a run at the runner that works on it; one that cannot be reached from here
// receives it from the registry, and where none works on it that is where it ends.
func (c *Client) AbortRun(ctx context.Context, req *runnerpb.AbortRunRequest, _ ...grpc.CallOption) (*runnerpb.AbortRunResponse, error) {
	agent, run := req.GetAgentId(), req.GetRunId()
	until := time.Now().Add(abortWait)
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		until = end
	}
	var after, far uint64 // far is the lease of a runner that cannot be reached
	var wait time.Duration
	asked := false
	for {
		found, err := c.where(ctx, agent, run, after, wait)
		l := found.GetLease()
		switch {
		case err != nil:
			return nil, err
		case found.GetEnded() && asked:
			return &runnerpb.AbortRunResponse{}, nil
		case found.GetEnded():
			return nil, wording.Ended(run)
		case l != nil:
			if err = errNobody; l.GetToken() != far {
				err = c.abortAt(ctx, l, req)
			}
			if away(err) && c.abortThrough(ctx, agent, run) {
				far, asked = l.GetToken(), true
			}
		default:
			err = c.abortHere(ctx, agent, run)
		}
		if err == nil {
			return &runnerpb.AbortRunResponse{}, nil
		}
		if f := fault.From(err); f.Code != codes.Unavailable && f.Reason != fault.LeaseHeld && f.Reason != fault.LeaseLost {
			return nil, err
		}
		// Its holder is not there, or another was faster. The next look waits for a
		// change, and looks again by itself: a lease that ends is none.
		after, wait = l.GetToken(), time.Second
		if asked {
			wait = retell
		}
		if time.Now().Add(wait).After(until) {
			return nil, unreached(run, l, err)
		}
	}
}

// abortThrough lets the registry tell the runner that cannot be reached from here; false
// when it does not know how.
func (c *Client) abortThrough(ctx context.Context, agent, run string) bool {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	_, err := c.leases.RequestAbort(ctx, &registrypb.RequestAbortRequest{AgentId: agent, RunId: run})
	return err == nil
}

// unreached is why a run goes on: who works on it did not hear of it in time.
func unreached(run string, l *registrypb.Lease, err error) error {
	if l == nil || !away(err) {
		return err
	}
	return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable, "run '"+run+"' is being worked on by "+l.GetHolder()+", which cannot be reached from here",
		"ask again: it learns of it from the registry with its next renewal, or its lease ends; or ask on a machine that reaches "+l.GetAddress()), err)
}

// abortAt asks the runner of a lease.
func (c *Client) abortAt(ctx context.Context, l *registrypb.Lease, req *runnerpb.AbortRunRequest) error {
	r, err := c.holder(ctx, l)
	if err == nil {
		_, err = r.AbortRun(ctx, req)
	}
	return err
}

// abortHere gives a run that nobody works on its fate. It is done under the run lease
// of the agent, like all that is done to a turn, so that it cannot meet a runner that
// takes it up: one of the two is refused.
func (c *Client) abortHere(ctx context.Context, agent, run string) error {
	holder := "owner-" + ulid.Make().String()
	r, err := c.leases.AcquireLease(ctx, &registrypb.AcquireLeaseRequest{
		Kind: registrypb.LeaseKind_LEASE_KIND_RUN, AgentId: agent, Holder: holder, RequestId: holder, Ttl: durationpb.New(ours),
	})
	if err != nil {
		return err
	}
	l := r.GetLease()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ours)
		defer cancel()
		_, _ = c.leases.ReleaseLease(ctx, &registrypb.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()})
	}()
	ctx, cancel := context.WithTimeout(rpc.WithFence(ctx, l.GetResource(), l.GetToken(), holder), ours)
	defer cancel()
	if _, err := c.turns.OpenBatch(ctx, &registrypb.OpenBatchRequest{AgentId: agent, Limit: 1}); err != nil { // seals the inbox
		return err
	}
	got, err := c.turns.GetTurn(ctx, &registrypb.GetTurnRequest{AgentId: agent, Key: run})
	t := got.GetTurn()
	switch {
	case err != nil:
		return err
	case t.GetState() == registrypb.TurnState_TURN_STATE_DONE:
		return wording.Ended(run)
	case t.GetLeader() != "":
		return wording.Together(run, t.GetLeader())
	}
	_, err = c.turns.WithdrawTurn(ctx, &registrypb.WithdrawTurnRequest{AgentId: agent, InboxId: t.GetInboxId(), Key: run, ThreadId: t.GetThreadId()})
	if !fault.Is(err, fault.TurnBegun) {
		return err
	}
	_, err = c.turns.FinishTurn(ctx, &registrypb.FinishTurnRequest{
		AgentId: agent, InboxId: t.GetInboxId(), Key: run, ThreadId: t.GetThreadId(),
		Fate: registrypb.Fate_FATE_ABORTED, Error: wording.ByOwner,
	})
	return err
}
