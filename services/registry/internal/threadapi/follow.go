package threadapi

import (
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// WatchEvents sends events as they are committed.
func (s *Service) WatchEvents(req *registryv1.WatchEventsRequest, out grpc.ServerStreamingServer[registryv1.WatchEventsResponse]) error {
	ctx, r := out.Context(), ref(req.GetThread())
	f, err := parseFilter(req.GetFilter())
	if err != nil {
		return err
	}
	if _, err := s.Dir.Get(r.Agent); err != nil {
		return err
	}
	after := req.GetAfterId()
	if after < 0 {
		p, err := s.Store.Read(ctx, r, store.Query{Limit: 1, Tail: true})
		if err != nil {
			return s.Fault(r.Agent, r.Thread, err)
		}
		after = p.Head
	}
	var beat <-chan time.Time
	if d := req.GetHeartbeat().AsDuration(); d > 0 {
		t := time.NewTicker(max(d, 100*time.Millisecond))
		defer t.Stop()
		beat = t.C
	}
	if err := out.Send(&registryv1.WatchEventsResponse{AfterId: after}); err != nil {
		return err
	}
	for {
		// The channel before the read: a commit between the two wakes it.
		woken, done := s.Events.Wait(r)
		more, err := s.sendSince(out, r, f, &after)
		if err == nil && !more {
			select {
			case <-woken:
			case <-s.Again():
			case <-beat:
				err = out.Send(&registryv1.WatchEventsResponse{AfterId: after})
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		done()
		if err != nil {
			return err
		}
	}
}

// sendSince sends one page after *after and moves it; more tells that the next
// page is there already.
func (s *Service) sendSince(out grpc.ServerStreamingServer[registryv1.WatchEventsResponse], r store.Ref, f *filter.Filter, after *int64) (more bool, err error) {
	p, err := s.Store.Read(out.Context(), r, store.Query{After: *after, Limit: 256, Filter: f})
	if err != nil {
		return false, s.Fault(r.Agent, r.Thread, err)
	}
	if len(p.Events) == 0 {
		*after = max(*after, p.Head) // skip what the filter leaves out
		return false, nil
	}
	*after = p.Events[len(p.Events)-1].ID
	return p.More, out.Send(&registryv1.WatchEventsResponse{Events: wire.Events(p.Events), AfterId: *after})
}
