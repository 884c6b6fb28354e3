package batch

import (
	"context"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/fairqueue"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// DefaultSlots is how many turns a process works on at a time.
const DefaultSlots = 512

// Slots are the places for turns of a process. A turn takes one; a turn that
// must be alone takes all of them, and those who come after it wait. Agents that
// wait get them in turn.
type Slots struct {
	places *fairqueue.Places
	size   int64
}

// NewSlots makes n places; 0 means DefaultSlots.
func NewSlots(n int) *Slots {
	if n <= 0 {
		n = DefaultSlots
	}
	return &Slots{fairqueue.New(int64(n)), int64(n)}
}

// slot is what one turn holds: a place in its agent's batch, for which peers wait
// in turn, and one in the process, or all of the latter. It belongs to one
// goroutine.
type slot struct {
	agentID, peer string
	agent         *fairqueue.Places
	all           *Slots
	weight, cost  int64
	held          bool
	// stop is closed when the batch starts nothing more.
	stop <-chan struct{}
	// batch and entry are the place of the turn in its lane.
	batch *Batch
	entry *entry
}

var _ turn.Slot = (*slot)(nil)

// take waits for a place. ErrYield when the batch ends meanwhile.
func (s *slot) take(ctx context.Context) error {
	select {
	case <-s.stop:
		return turn.ErrYield
	default:
	}
	if s.agent.TryTake(1) { // the usual case, without a goroutine
		if s.held = s.all.places.TryTake(s.weight); s.held {
			return nil
		}
		s.agent.Give(1)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer afterClose(s.stop, func() { cancel(turn.ErrYield) })()
	if err := s.agent.Take(ctx, s.peer, 1, s.cost); err != nil {
		return err
	}
	if err := s.all.places.Take(ctx, s.agentID, s.weight, 1); err != nil {
		s.agent.Give(1)
		return err
	}
	s.held = true
	return nil
}

func (s *slot) give() {
	if s.held {
		s.held = false
		s.all.places.Give(s.weight)
		s.agent.Give(1)
	}
}

// Pause implements turn.Slot.
func (s *slot) Pause(ctx context.Context, d time.Duration, back <-chan struct{}) error {
	s.give()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.stop:
		return turn.ErrYield
	case <-back:
	case <-timer.C:
	}
	return s.take(ctx)
}

// GivenBack implements turn.Slot.
func (s *slot) GivenBack() *registrypb.FailedTry { return s.entry.givenBack }

// Alone implements turn.Slot.
func (s *slot) Alone(ctx context.Context) error {
	s.give()
	s.weight = s.all.size
	return s.take(ctx)
}

// Collect implements turn.Slot.
func (s *slot) Collect() []*registrypb.Member {
	return s.batch.mergeable(s.entry, registrypb.QueueMode_QUEUE_MODE_COLLECT)
}

// Steer implements turn.Slot.
func (s *slot) Steer() []*registrypb.Member {
	return s.batch.mergeable(s.entry, registrypb.QueueMode_QUEUE_MODE_STEER)
}

// afterClose calls f when c is closed, until the function it returns is called.
func afterClose(c <-chan struct{}, f func()) (stop func()) {
	done, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		select {
		case <-c:
			f()
		case <-done:
		}
	}()
	return func() { close(done); <-left }
}
