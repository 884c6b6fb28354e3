package deliverer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/worker"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer/internal/delivery"
)

// DeliverBatch drains one thread to the head it has now, or to where it has to
// wait, together with a drain that is under way here.
func (s *Service) DeliverBatch(ctx context.Context, req *delivererv1.DeliverBatchRequest) (*delivererv1.DeliverBatchResponse, error) {
	info, err := s.threads.GetThread(ctx, &registryv1.GetThreadRequest{
		Thread: &registryv1.ThreadRef{AgentId: req.GetAgentId(), ThreadId: req.GetThreadId()},
	})
	if err != nil {
		return nil, fmt.Errorf("get thread: %w", err)
	}
	var total delivery.Counts
	for {
		t, err := s.worker.Take(ctx, req.GetAgentId())
		if errors.Is(err, worker.ErrEnding) {
			return nil, errStopping
		}
		if err != nil { // that another process has the lease is the registry's answer, and passed on
			return nil, err
		}
		n, err := t.Work.Deliver(ctx, req.GetThreadId(), info.GetHeadId())
		total.Sent += n.Sent
		total.Dead += n.Dead
		switch {
		case err == nil:
			return &delivererv1.DeliverBatchResponse{Sent: total.Sent, Dead: total.Dead}, nil
		case errors.Is(err, lease.ErrLost):
			return nil, fault.Wrap(fault.New(codes.Aborted, fault.LeaseLost, "the lease was lost during the delivery", "run it again; what was sent is recorded and is not sent twice"), err)
		case !errors.Is(err, delivery.ErrClosed):
			return nil, fmt.Errorf("deliver: %w", err)
		}
		select { // the drain is giving its lease back: take the next one
		case <-t.Done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

var errStopping = fault.New(codes.Unavailable, fault.ServiceUnavailable, "the deliverer is not running, or is being stopped", "try again, or start it with `agentd deliverer`")

// GetDelivererInfo returns what this deliverer does now.
func (s *Service) GetDelivererInfo(context.Context, *delivererv1.GetDelivererInfoRequest) (*delivererv1.GetDelivererInfoResponse, error) {
	out := &delivererv1.GetDelivererInfoResponse{
		Holder: s.deps.Holder, DrainsActive: int32(s.pool.Active()), Uptime: durationpb.New(time.Since(s.born)),
	}
	for _, d := range s.breakers.Down() {
		state := "open"
		if d.Probing {
			state = "half-open"
		}
		out.Breakers = append(out.Breakers, &delivererv1.BreakerInfo{Channel: d.Key.String(), State: state, Wait: durationpb.New(d.Wait)})
	}
	sent := s.pool.Sent()
	for _, account := range slices.Sorted(maps.Keys(sent)) {
		out.Accounts = append(out.Accounts, &delivererv1.AccountSends{Account: account, Sent: sent[account]})
	}
	return out, nil
}
