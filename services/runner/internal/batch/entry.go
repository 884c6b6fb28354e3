package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

var errWithdrawn = errors.New("withdrawn before its turn began")

// entry is an event in its lane.
//
//	waiting --its turn--> begun
//	   |  \--merged into an earlier one--> begun, until that one has ended
//	   v
//	withdrawn --ended--> gone
//	   \--not to be withdrawn any more--> waiting
type entry struct {
	event *registrypb.PendingEvent
	read  time.Time
	// givenBack is how its last claim ended here; only its lane uses it.
	givenBack *registrypb.FailedTry

	// Under the batch's mu:
	begun  bool
	waits  bool          // its turn waits for a person, whose next message may be the answer
	cut    func()        // ends the abort by a later event; nil: none has ended it
	gone   chan struct{} // withdrawn; closed when it is known what came of it
	cancel context.CancelCauseFunc
}

// enter waits for a place. errWithdrawn when the event is withdrawn meanwhile.
func (b *Batch) enter(ctx context.Context, w *entry, s *slot) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b.mu.Lock()
	gone := w.gone
	w.cancel = cancel
	b.mu.Unlock()
	if gone != nil {
		return errWithdrawn
	}
	var err error
	if withoutModel(w.event) {
		if s.stop.Err() != nil {
			err = turn.ErrYield
		}
	} else {
		err = s.take(ctx, s.stop)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w.cancel = nil
	if w.gone != nil {
		s.give()
		return errWithdrawn
	}
	w.begun = err == nil || w.begun
	return err
}

// behind are the events of the same source, with ids above after, that wait behind one, and
// what is closed at the next change.
func (b *Batch) behind(first *entry, after int64) (out []*registrypb.PendingEvent, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.lanes[first.event.GetThreadId()] {
		e := w.event.GetEvent()
		if w != first && w.gone == nil && w.event.GetCommand() == nil && e.GetId() > after && e.GetSource() == first.event.GetEvent().GetSource() {
			out = append(out, w.event)
		}
	}
	return out, b.progress
}

// hold keeps an event from being withdrawn, or no longer; false when it was.
func (b *Batch) hold(key string, on bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.find(key)
	if w == nil || w.gone != nil {
		return false
	}
	w.begun = on
	return true
}

// release lets the members wait again that the turn of a thread did not answer.
func (b *Batch) release(threadID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.lanes[threadID] {
		w.begun = false
	}
}

// Withdraw asks that an event be ended that no turn has begun. It returns false
// when there is none such here: it has begun, or has its fate. What came of it
// its fate shows.
func (b *Batch) Withdraw(ctx context.Context, key string) (bool, error) {
	b.Wake()
	id, _ := thread.KeyID(key)
	for {
		b.mu.Lock()
		w := b.find(key)
		switch {
		case w != nil && w.gone != nil:
			b.mu.Unlock()
			return true, nil
		case w != nil && !w.begun:
			b.withdraw(w)
			b.mu.Unlock()
			if b.stop.Err() != nil {
				return false, ErrEnded
			}
			return true, nil
		case w != nil || b.scanned >= id:
			b.mu.Unlock()
			return false, nil
		case b.ended:
			b.mu.Unlock()
			return false, ErrEnded
		}
		progress := b.progress
		b.mu.Unlock()
		select {
		case <-progress:
		case <-ctx.Done():
			return false, fmt.Errorf("withdraw event: %w", context.Cause(ctx))
		}
	}
}

// withdraw lets the batch end an event that has not begun. The caller holds mu. It does not block: an event leaves
// once at a time, and no more than [Window] are in hand.
func (b *Batch) withdraw(w *entry) {
	w.gone = make(chan struct{})
	if w.cancel != nil {
		w.cancel(errWithdrawn)
	}
	b.leaving <- w
}

// Waiting is how many events stand behind others.
func (b *Batch) Waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, lane := range b.lanes {
		n += max(len(lane)-1, 0)
	}
	return n
}

// find returns the entry of a key. The caller holds mu.
func (b *Batch) find(key string) *entry {
	for _, lane := range b.lanes {
		for _, w := range lane {
			if w.event.GetKey() == key {
				return w
			}
		}
	}
	return nil
}

// settle ends a withdrawn event, or lets it wait again.
func (b *Batch) settle(ctx context.Context, w *entry) {
	call, cancel := context.WithTimeout(ctx, 10*time.Second)
	_, err := b.deps.Inbox.WithdrawTurn(call, &registrypb.WithdrawTurnRequest{
		AgentId: b.cfg.AgentID, InboxId: w.event.GetEvent().GetId(), Key: w.event.GetKey(), ThreadId: w.event.GetThreadId(),
	})
	cancel()
	if err == nil {
		b.finished(w.event.GetThreadId(), w.event.GetEvent().GetId(), false)
	} else if ctx.Err() == nil && !fault.Is(err, fault.TurnBegun) {
		b.deps.Logger.WarnContext(ctx, "event not withdrawn", "agent_id", b.cfg.AgentID, "event_id", w.event.GetEvent().GetId(), "error", fault.Chain(err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := w.gone
	if w.gone = nil; err == nil {
		w.gone = gone
	}
	close(gone)
}
