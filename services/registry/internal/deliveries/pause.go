package deliveries

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/thread"
)

// pause is how long the next message of a thread still waits for the delay of people (human_delay); 0:
// it may be sent. It is counted from when the message before it was sent, where that is of the same run: no
// message from outside stands between the two. The attempt is not counted before the pause is over, so
// that a process which ends in it has sent nothing.
func (s *Service) pause(ctx context.Context, r store.Ref, fence store.Fence, delay config.Delay, n store.NextDelivery) (time.Duration, error) {
	if delay == (config.Delay{}) {
		return 0, nil
	}
	n.Peek, n.WithRun = true, false
	due, err := s.Store.NextDelivery(ctx, r, fence, n)
	if err != nil || due.Outcome != store.DueSend || due.Attempt > 1 || due.Parts > 0 {
		return 0, err // what was tried before has had its pause
	}
	messages, err := filter.Parse("type = '" + thread.TypeMessage + "'")
	if err != nil {
		return 0, err
	}
	p, err := s.Store.Read(ctx, r, store.Query{Upto: due.Event.ID - 1, Tail: true, Limit: 1, Filter: messages})
	if err != nil || len(p.Events) == 0 || p.Events[0].Source != thread.SourceSelf {
		return 0, err
	}
	before := p.Events[0].ID
	list, err := s.Store.ListDeliveries(ctx, r, store.DeliverySent, before-1, 1)
	if err != nil || len(list) == 0 || list[0].EventID != before {
		return 0, err
	}
	passed := time.Since(list[0].UpdatedAt)
	if passed < -machine.ClockStep {
		return 0, nil
	}
	return delay.For(due.Key) - max(passed, 0), nil
}
