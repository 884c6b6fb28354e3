package batch

import (
	"context"
	"sync/atomic"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/fairqueue"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// DefaultSlots is how many turns a process works on at a time.
const DefaultSlots = 512

// backgroundPlaces is how many pieces of background work that follow turns a process
// does at a time, next to its turns: each is a call of a model, which the provider of
// the replies may have to answer too.
const backgroundPlaces = 16

// Slots are the places for turns of a process. A turn takes one; a turn that
// must be alone takes all of them, and those who come after it wait. Agents that
// wait get them in turn. The work that follows turns has places of its own, which only a
// turn that must be alone takes too.
type Slots struct {
	places *fairqueue.Places
	size   int64

	background *fairqueue.Places
	following  atomic.Int32 // see Background
}

// NewSlots makes n places for turns; 0 means DefaultSlots.
func NewSlots(n int) *Slots {
	if n <= 0 {
		n = DefaultSlots
	}
	return &Slots{places: fairqueue.New(int64(n)), size: int64(n), background: fairqueue.New(backgroundPlaces)}
}

// Background is how many pieces of background work follow turns now: running, waiting
// for their place, or reserved by a turn that is about to end.
func (s *Slots) Background() int { return int(s.following.Load()) }

// slot is what one turn holds: a place in its agent's batch, for which peers wait
// in turn, and one in the process, or all of the latter. It belongs to one
// goroutine.
type slot struct {
	agentID, peer string
	agent         *fairqueue.Places
	all           *Slots
	weight, cost  int64
	held, alone   bool
	// stop ends when the batch starts nothing more.
	stop context.Context
	// batch and entry are the place of the turn in its lane.
	batch *Batch
	entry *entry
}

var _ turn.Slot = (*slot)(nil)

// take waits for a place. ErrYield when stop ends meanwhile.
func (s *slot) take(ctx, stop context.Context) error {
	if stop.Err() != nil {
		return turn.ErrYield
	}
	if !s.alone && s.agent.TryTake(1) { // the usual case, without a goroutine
		if s.held = s.all.places.TryTake(s.weight); s.held {
			return nil
		}
		s.agent.Give(1)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(stop, func() { cancel(turn.ErrYield) })()
	if err := s.agent.Take(ctx, s.peer, 1, s.cost); err != nil {
		return err
	}
	if err := s.all.places.Take(ctx, s.agentID, s.weight, 1); err != nil {
		s.agent.Give(1)
		return err
	}
	if s.alone {
		if err := s.all.background.Take(ctx, s.agentID, backgroundPlaces, 1); err != nil {
			s.all.places.Give(s.weight)
			s.agent.Give(1)
			return err
		}
	}
	s.held = true
	return nil
}

func (s *slot) give() {
	if s.held {
		s.held = false
		if s.alone {
			s.all.background.Give(backgroundPlaces)
		}
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
	case <-s.stop.Done():
		return turn.ErrYield
	case <-back:
	case <-timer.C:
	}
	return s.take(ctx, s.stop)
}

// Wait implements turn.Slot.
func (s *slot) Wait(ctx context.Context, f func(context.Context) error) error {
	s.give()
	s.batch.setWaits(s.entry, true)
	defer s.batch.setWaits(s.entry, false)
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stop, func() { cancel(turn.ErrYield) })()
	err := f(wait)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && wait.Err() != nil:
		return turn.ErrYield
	}
	// An answer that is here is used, also when the batch ends now: it is like any running turn.
	if taken := s.take(ctx, context.Background()); taken != nil {
		return taken
	}
	return err
}

// Behind implements turn.Slot.
func (s *slot) Behind(after int64) ([]*registrypb.PendingEvent, <-chan struct{}) {
	return s.batch.behind(s.entry, after)
}

// Hold implements turn.Slot.
func (s *slot) Hold(key string, on bool) bool { return s.batch.hold(key, on) }

// GivenBack implements turn.Slot.
func (s *slot) GivenBack() *registrypb.FailedTry { return s.entry.givenBack }

// Alone implements turn.Slot.
func (s *slot) Alone(ctx context.Context) error {
	s.give()
	s.alone, s.weight = true, s.all.size
	return s.take(ctx, s.stop)
}

// Queue implements turn.Slot.
func (s *slot) Queue(mode registrypb.QueueMode, waits bool) { s.batch.setMode(s.entry, mode, waits) }

// Collect implements turn.Slot.
func (s *slot) Collect() (members []*registrypb.Member, short int) { return s.batch.collect(s.entry) }

// Steer implements turn.Slot.
func (s *slot) Steer() []*registrypb.Member { return s.batch.steer(s.entry) }

// Background implements turn.Slot.
func (s *slot) Background() turn.Background {
	if f := s.batch.reserve(s.agentID, s.entry.event.GetThreadId(), s.all); f != nil {
		return f
	}
	return nil
}

// AwaitBackground implements turn.Slot.
func (s *slot) AwaitBackground(ctx context.Context, d time.Duration, over bool) bool {
	return s.batch.awaitFollowing(ctx, s.entry.event.GetThreadId(), d, over)
}
