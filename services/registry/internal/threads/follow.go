package threads

import (
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
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
	if _, err := s.Agents.Get(r.Agent); err != nil {
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
	follower := s.Wakes.Follow(r)
	defer follower.Close()
	for read := true; ; {
		news, unsure := follower.Take()
		if read = read || unsure || !next(news, after); read {
			read, err = s.sendSince(out, r, f, &after)
		} else {
			err = sendNews(out, news, f, &after)
		}
		if err == nil && !read {
			select {
			case <-follower.Woken():
			case <-s.Wakes.Again():
				read = true
			case <-beat:
				err = out.Send(&registryv1.WatchEventsResponse{AfterId: after})
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			return err
		}
	}
}

// next reports whether news are what comes after an event, one after the other: then there
// is nothing that somebody else has written in between. Those up to it were sent.
func next(news []thread.Event, after int64) bool {
	for _, e := range news {
		switch {
		case e.ID <= after:
		case e.ID == after+1:
			after++
		default:
			return false
		}
	}
	return true
}

// sendNews sends what was committed here, without a read, and moves *after.
func sendNews(out grpc.ServerStreamingServer[registryv1.WatchEventsResponse], news []thread.Event, f *filter.Filter, after *int64) error {
	var page []thread.Event
	for _, e := range news {
		if e.ID > *after {
			*after = e.ID
			if f.Match(filter.Row{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Subtype: e.Subtype}) {
				page = append(page, e)
			}
		}
	}
	for len(page) > 0 { // as many bytes as an answer may have
		n, size := 1, page[0].Size()
		for n < len(page) && size+page[n].Size() <= thread.MaxAnswer {
			size += page[n].Size()
			n++
		}
		if err := out.Send(&registryv1.WatchEventsResponse{Events: wire.Events(page[:n]), AfterId: page[n-1].ID}); err != nil {
			return err
		}
		page = page[n:]
	}
	return nil
}

// sendSince sends one page after *after and moves it; more reports that there is a next
// page already.
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
