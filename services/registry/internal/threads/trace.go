package threads

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// trace begins the trace of each message that a push has put on disk. Its name is
// the event's key, which is known when the event is.
func (s *Service) trace(ctx context.Context, r store.Ref, ids []int64, events []store.NewEvent, begun time.Time) {
	if s.Trace == nil || !r.IsInbox() {
		return
	}
	for n, id := range ids {
		e, key, err := s.Store.InboxEvent(ctx, r.Agent, id)
		if err != nil {
			s.Log.WarnContext(ctx, "push not traced", "agent_id", r.Agent, "event_id", id, "error", err)
			return
		}
		if e.Type == thread.TypeMessage {
			received := n < len(events) && events[n].Origin != nil && events[n].Origin.Account != ""
			s.Trace.Pushed(ctx, key, tracing.Where{AgentID: r.Agent, EventID: id}, received, begun)
		}
	}
}
