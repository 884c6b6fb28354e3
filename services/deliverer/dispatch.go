package deliverer

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/pause"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	maxGrants   = 256 // what the registry answers at most
	firstPause  = 50 * time.Millisecond
	maxPause    = 2 * time.Second
	pollGrace   = 10 * time.Second // for the answer of a poll whose wait ran out
	quickAnswer = time.Second      // an empty answer before this was no wait
)

// dispatch asks for work until ctx ends. base is what the work runs under.
func (s *Service) dispatch(ctx, base context.Context) {
	var (
		request  string
		sent     time.Time // of the first try under this request id: a repeat
		failures int       // may be answered with grants that are as old as that
	)
	for {
		places := s.pool.Free(ctx)
		if ctx.Err() != nil {
			return
		}
		if request == "" {
			request, sent = ulid.Make().String(), time.Now()
		}
		asked := time.Now()
		due, err := s.poll(ctx, request, places)
		switch {
		case ctx.Err() != nil && err != nil:
			return
		case err != nil: // a lost answer is asked for again under its own name
			if failures == 0 {
				s.deps.Logger.Warn("wait for work failed, will be repeated", "error", err)
			}
			_ = pause.For(ctx, jitter(failures))
			failures++
			continue
		case len(due) == 0 && time.Since(asked) < min(quickAnswer, s.cfg.Poll/2):
			_ = pause.For(ctx, jitter(failures)) // a registry that is stopping answers at once
			failures++
		default:
			failures = 0
		}
		request = ""
		for _, work := range due {
			s.take(base, work, sent)
		}
	}
}

func (s *Service) poll(ctx context.Context, request string, places int) ([]*registryv1.DueWork, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Poll+pollGrace)
	defer cancel()
	resp, err := s.leases.AcquireDueLease(ctx, &registryv1.AcquireDueLeaseRequest{
		Kind: registryv1.LeaseKind_LEASE_KIND_DELIVER, Holder: s.deps.Holder, Address: s.cfg.Address, RequestId: request,
		Ttl: durationpb.New(s.cfg.TTL), MaxNew: int32(min(places, maxGrants)), Wait: durationpb.New(s.cfg.Poll),
	})
	if err != nil {
		return nil, err
	}
	return resp.GetDue(), nil
}

// take hands due work to the term of its lease, or begins one.
func (s *Service) take(base context.Context, work *registryv1.DueWork, sent time.Time) {
	t := s.find(work.GetAgentId())
	if t == nil || t.token != work.GetLease().GetToken() {
		if !work.GetFresh() {
			if !s.owe(work) {
				// A lease we know nothing of: given back, its work comes up again.
				s.release(base, work.GetLease())
			}
			return
		}
		if t = s.start(base, work.GetLease(), sent); t == nil {
			return
		}
	}
	// A term that is closed does not take it: it gives its lease back, and the
	// registry looks what is left.
	t.drain.Wake(work.GetThreadIds()...)
}

// owe keeps work for the term that a DeliverBatch is about to begin, whose lease
// the registry saw before we did. It reports whether there is such a call.
func (s *Service) owe(work *registryv1.DueWork) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := work.GetAgentId()
	if t := s.terms[id]; t != nil && t.token == work.GetLease().GetToken() {
		t.drain.Wake(work.GetThreadIds()...) // it began since we looked
		return true
	}
	if s.asking[id] == 0 {
		return false
	}
	s.owed[id] = append(s.owed[id], work.GetThreadIds()...)
	return true
}

// jitter is how long to rest after failures: anything from a moment up to 50 ms, which
// doubles with each, at most 2 s.
func jitter(failures int) time.Duration {
	return time.Millisecond + rand.N(min(firstPause<<min(failures, 10), maxPause))
}
