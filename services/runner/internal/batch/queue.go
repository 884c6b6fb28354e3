package batch

import (
	"context"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

const (
	// maxMembers is how many events are merged into one, with those that waited beyond the cap of the queue
	// not counted.
	maxMembers = 20
	// maxDebounces is how many times the debounce of the queue a message waits for others to come.
	maxDebounces = 10
)

// queue is what becomes of events that wait behind others.
type queue struct {
	mode     registrypb.QueueMode
	debounce time.Duration
	// cap is how many messages of one speaker of a chat platform may wait; 0: any number.
	cap int
}

func readQueue(r *registrypb.OpenBatchResponse) queue {
	return queue{r.GetQueueMode(), r.GetQueueDebounce().AsDuration(), int(r.GetQueueCap())}
}

// modeOf is the mode of a conversation: the one that its last turn in this lane reported, since a person may have chosen
// it for the conversation alone, else that of the agent. The caller holds mu.
func (b *Batch) modeOf(threadID string) registrypb.QueueMode {
	if mode, ok := b.modes[threadID]; ok {
		return mode
	}
	return b.queue.mode
}

// setMode notes the mode of the conversation of an event, and whether its turn goes on with a wait for a person.
func (b *Batch) setMode(w *entry, mode registrypb.QueueMode, waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.waits = waits
	b.modes[w.event.GetThreadId()] = mode
	b.interrupt(w.event.GetThreadId())
}

// collect are the events right behind one that may be merged into its turn as it begins: all that wait, where the
// conversation collects, and those beyond the cap of the queue. short is how many of them all, from the first event
// on, are beyond it; the one after them is the oldest that is not. They cannot be withdrawn until release.
func (b *Batch) collect(first *entry) (out []*registrypb.Member, short int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 0
	if b.modeOf(first.event.GetThreadId()) == registrypb.QueueMode_QUEUE_MODE_COLLECT {
		most = maxMembers
	}
	over := b.beyondCap(first)
	if over > 0 {
		most = max(over, over-1+most)
	}
	out = b.merge(first, most)
	return out, min(over, len(out))
}

// steer are the events right behind one that are to be merged into its turn, which runs and has no open call.
func (b *Batch) steer(first *entry) []*registrypb.Member {
	b.mu.Lock()
	defer b.mu.Unlock()
	first.waits = false
	if b.modeOf(first.event.GetThreadId()) != registrypb.QueueMode_QUEUE_MODE_STEER {
		return nil
	}
	return b.merge(first, maxMembers)
}

// beyondCap is how many messages of the speaker of one wait beyond the cap of the queue. The caller holds mu.
func (b *Batch) beyondCap(first *entry) int {
	if b.queue.cap == 0 || first.event.GetSessionKey() == "" {
		return 0
	}
	waiting := 0
	for _, w := range b.lanes[first.event.GetThreadId()] {
		if w.gone == nil && w.event.GetCommand() == nil && w.event.GetEvent().GetSource() == first.event.GetEvent().GetSource() {
			waiting++
		}
	}
	return max(waiting-b.queue.cap, 0)
}

// merge returns at most so many events right behind one, of the same speaker; none when it returned them all before,
// for the registry knows which are merged already, and keeps to the order of the rest. The caller holds mu.
func (b *Batch) merge(first *entry, most int) (out []*registrypb.Member) {
	if first.event.GetCommand() != nil {
		return nil
	}
	fresh := false
	for _, w := range b.lanes[first.event.GetThreadId()] {
		if w == first {
			continue
		}
		if len(out) == most || w.event.GetCommand() != nil || w.cut != nil || w.gone != nil || w.event.GetEvent().GetSource() != first.event.GetEvent().GetSource() {
			break
		}
		fresh = fresh || !w.begun
		w.begun = true
		out = append(out, &registrypb.Member{InboxId: w.event.GetEvent().GetId(), Key: w.event.GetKey()})
	}
	if !fresh {
		return nil
	}
	return out
}

// interrupt ends each turn of a conversation of mode interrupt for which a later message of the same speaker is here: the
// one that runs, and those that have not begun as soon as they do, so that their messages are part of the conversation
// that the last one continues. A message that is part of another's turn ends none, and no turn ends that waits for a
// person: whether the first one of a lane does is known when it has begun ([Batch.setMode]). The caller holds mu.
func (b *Batch) interrupt(threadID string) {
	if b.modeOf(threadID) != registrypb.QueueMode_QUEUE_MODE_INTERRUPT {
		return
	}
	last := map[string]*registrypb.PendingEvent{} // by source
	lane := b.lanes[threadID]
	for i := len(lane) - 1; i >= 0; i-- {
		w := lane[i]
		if w.event.GetCommand() != nil || w.gone != nil || i > 0 && w.begun || w.waits {
			continue
		}
		from := w.event.GetEvent().GetSource()
		if later := last[from]; later == nil {
			last[from] = w.event
		} else if w.cut == nil && (i > 0 || w.begun) {
			w.cut = b.deps.Abort(w.event.GetKey(), later)
		}
	}
}

func (b *Batch) setWaits(w *entry, waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.waits = waits
}

// quiet waits until no message has come to the conversation of one for the debounce of the queue. ErrYield when the
// batch ends first; errWithdrawn when the message is withdrawn.
func (b *Batch) quiet(ctx context.Context, w *entry) error {
	for {
		b.mu.Lock()
		until, changed := time.Time{}, b.progress
		if w.event.GetCommand() == nil && b.queue.debounce > 0 {
			for _, other := range b.lanes[w.event.GetThreadId()] {
				if other.event.GetCommand() == nil {
					until = other.read.Add(b.queue.debounce)
				}
			}
			if most := w.read.Add(maxDebounces * b.queue.debounce); until.After(most) {
				until = most
			}
		}
		gone := w.gone
		b.mu.Unlock()
		if gone != nil {
			return errWithdrawn
		}
		wait := time.Until(until)
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-b.stop.Done():
			timer.Stop()
			return turn.ErrYield
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}
