package leaseapi

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
)

// findDue is AcquireDueLease where the database knows who has work. It looks at all of
// it first, when its holder has not asked here just before, then at what it is told of,
// and at all again after a while, because what is told may be lost. A question that is
// asked again elsewhere gets the same leases: they carry its name.
func (s *Service) findDue(ctx context.Context, req *registryv1.AcquireDueLeaseRequest, timeout <-chan time.Time, lapses int) (*registryv1.AcquireDueLeaseResponse, error) {
	ask := leases.Ask{
		Deliver: req.GetKind() == registryv1.LeaseKind_LEASE_KIND_DELIVER, Holder: req.GetHolder(), Address: req.GetAddress(),
		RequestID: req.GetRequestId(), TTL: ttlOf(req.GetTtl()), MaxNew: int(req.GetMaxNew()),
	}
	hints := &s.Shared.Runs
	if ask.Deliver {
		hints = &s.Shared.Deliveries
	}
	told := hints.Listen(dispatch.Ask{Holder: ask.Holder, ID: ask.RequestID, Room: ask.MaxNew})
	defer told.Close()
	again := s.Again()
	for {
		out := &registryv1.AcquireDueLeaseResponse{}
		if s.polls.lapsesOf(req.GetHolder()) != lapses {
			return out, nil // see AcquireDueLease
		}
		if news, any := told.Take(); any {
			ask.All, ask.Mine, ask.Free = news.All, news.Mine, news.Free
			if req.GetNews() && !ask.Deliver && !ask.All {
				ask.Mine, out.News = nil, news.Mine // he knows what he has: the database need not be asked
			}
			found, waiting, err := s.Shared.Leases.Find(ctx, ask)
			if err != nil {
				told.LookAtAll()
				return nil, s.Fault("", "", err)
			}
			out.Waiting = int32(waiting)
			room := ask.MaxNew
			for _, f := range found {
				out.Due = append(out.Due, &registryv1.DueWork{AgentId: f.Agent, HeadId: f.Head, ThreadIds: f.Threads, Lease: toLease(f.Lease, true), Fresh: f.Fresh})
				if f.Fresh {
					room--
					s.Fates.Wake(f.Agent)
					s.Metrics.DispatchLatency.Observe(max(time.Since(f.Since), 0).Seconds())
				}
			}
			if room <= 0 || waiting > 0 { // there may be more than it could have
				told.LookAtAll()
			}
			if len(out.GetDue())+len(out.GetNews()) > 0 {
				return out, nil
			}
		}
		select {
		case <-told.Wake():
		case <-again:
			again = s.Again()
			told.LookAtAll()
		case <-timeout:
			return out, nil
		case <-rpc.Draining(ctx):
			return out, nil
		case <-ctx.Done():
			s.reapSoon() // the asker may have died with leases in its hands
			return nil, ctx.Err()
		}
	}
}
