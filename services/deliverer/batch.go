package deliverer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/pause"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer/internal/drain"
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
	var total drain.Counts
	for failures := 0; ; failures++ {
		t, err := s.join(ctx, req.GetAgentId(), failures)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		n, err := t.drain.Deliver(ctx, req.GetThreadId(), info.GetHeadId())
		total.Sent += n.Sent
		total.Dead += n.Dead
		switch {
		case err == nil:
			return &delivererv1.DeliverBatchResponse{Sent: total.Sent, Dead: total.Dead}, nil
		case errors.Is(err, lease.ErrLost):
			return nil, fault.Wrap(fault.New(codes.Aborted, fault.LeaseLost, "the lease was lost during the delivery", "run it again: what was sent is on record"), err)
		case !errors.Is(err, drain.ErrClosed):
			return nil, fmt.Errorf("deliver: %w", err)
		}
		select { // the drain is giving its lease back: take the next one
		case <-t.over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// join answers the term under which to drain an agent; nil without an error
// means to ask again. That somebody else has the lease is the registry's word,
// and passed on.
func (s *Service) join(ctx context.Context, agentID string, failures int) (*term, error) {
	if t := s.find(agentID); t != nil {
		return t, nil
	}
	select {
	case <-s.stopped:
		return nil, errStopping
	default:
	}
	s.ask(agentID, 1)
	defer s.ask(agentID, -1)
	sent := time.Now()
	resp, err := s.leases.AcquireLease(ctx, &registryv1.AcquireLeaseRequest{
		Kind: registryv1.LeaseKind_LEASE_KIND_DELIVER, AgentId: agentID, Holder: s.deps.Holder, Address: s.cfg.Address,
		RequestId: ulid.Make().String(), Ttl: durationpb.New(s.cfg.TTL),
	})
	if err != nil {
		e := fault.From(err)
		if e.Reason == fault.LeaseHeld && (s.find(agentID) != nil || e.Meta["holder"] == s.deps.Holder) {
			// We are that holder: the grant is on its way to our own dispatch.
			_ = pause.For(ctx, jitter(failures))
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	st := start{grant: resp.GetLease(), sent: sent, reply: make(chan *term, 1)}
	select {
	case s.starts <- st:
	case <-s.stopped:
		s.release(context.WithoutCancel(ctx), st.grant)
		return nil, errStopping
	case <-ctx.Done():
		s.release(context.WithoutCancel(ctx), st.grant)
		return nil, context.Cause(ctx)
	}
	if t := <-st.reply; t != nil {
		return t, nil
	}
	return nil, errStopping
}

// ask counts the calls that ask for an agent's lease. When the last one got
// none, what is owed comes up again with the end of whatever lease it was for.
func (s *Service) ask(agentID string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking[agentID] += n; s.asking[agentID] == 0 {
		delete(s.asking, agentID)
		delete(s.owed, agentID)
	}
}

var errStopping = fault.New(codes.Unavailable, fault.ServiceUnavailable, "the deliverer is not running, or is being stopped", "try again, or start it with `agentd deliverer`")

// GetDelivererInfo answers what this deliverer does now.
func (s *Service) GetDelivererInfo(context.Context, *delivererv1.GetDelivererInfoRequest) (*delivererv1.GetDelivererInfoResponse, error) {
	out := &delivererv1.GetDelivererInfoResponse{
		Holder: s.deps.Holder, DrainsActive: int32(s.pool.Active()), Uptime: durationpb.New(time.Since(s.born)),
	}
	for _, d := range s.breakers.Down() {
		state := "open"
		if d.Probing {
			state = "half-open"
		}
		name := d.Key.Channel
		if d.Key.Host != "" {
			name += " " + d.Key.Host
		}
		out.Breakers = append(out.Breakers, &delivererv1.BreakerInfo{Channel: name, State: state, Wait: durationpb.New(d.Wait)})
	}
	return out, nil
}
