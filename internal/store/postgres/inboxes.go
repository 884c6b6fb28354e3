package postgres

import (
	"context"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/journal"
	"github.com/theclaw/agents/internal/thread"
)

// State answers what dispatch must know of an inbox.
func (e *Engine) State(ctx context.Context, agent string) (store.InboxState, error) {
	s := journal.State()
	err := e.view(ctx, store.Inbox(agent), s)
	return s.Out, err
}

// InboxEvent answers one inbox event and its key.
func (e *Engine) InboxEvent(ctx context.Context, agent string, id int64) (thread.Event, string, error) {
	s := journal.Event(id)
	err := e.view(ctx, store.Inbox(agent), s)
	return s.Out, s.Key, err
}

// SetStarted stores the desired state and makes the subscription agree. A claim under
// way commits before a stop is answered, and a later one sees it.
func (e *Engine) SetStarted(ctx context.Context, agent string, started bool, handler string) (bool, error) {
	s := journal.SetStarted(started, handler)
	err := e.unit.Alone(ctx, store.Inbox(agent), "agent/"+agent, s)
	return s.Out, err
}

// OpenBatch seals the inbox and answers events that have no fate. Whether an event was
// begun under an earlier mode is asked between two transactions, because it is asked of
// other threads: none is held meanwhile. The seal of the first keeps those that could
// begin one out, as far as it could in one transaction: a thread is not the inbox.
func (e *Engine) OpenBatch(ctx context.Context, agent string, f store.Fence, o store.OpenBatch) (store.Batch, error) {
	r := store.Inbox(agent)
	var begun *machine.Begun
	for range modeChanges {
		s := journal.Open(o, begun)
		done, err := e.unit.Peek(ctx, r, f, s) // a batch in the middle of its term writes nothing
		if err == nil && !done {
			s = journal.Open(o, begun)
			err = e.fenced(ctx, r, f, s)
		}
		if err != nil || s.Ask == "" {
			return s.Out, err
		}
		from, err := e.firstUnclaimed(ctx, r, o)
		if err != nil {
			return store.Batch{}, err
		}
		begun = &machine.Begun{Mode: s.Ask, From: from}
	}
	return store.Batch{}, fmt.Errorf("the routing mode of %s changes all the time: %w", agent, store.ErrBusy)
}

// modeChanges is how many changes of the mode, one after the other, one batch follows.
const modeChanges = 8

// firstUnclaimed is the id after the last open event that was begun; 0 when none was.
func (e *Engine) firstUnclaimed(ctx context.Context, r store.Ref, o store.OpenBatch) (int64, error) {
	from, after, left := int64(0), int64(0), machine.MaxAhead
	for more := true; more && left > 0; {
		s := journal.Ahead(after, left)
		if err := e.view(ctx, r, s); err != nil {
			return 0, err
		}
		for _, c := range s.Out {
			begun, err := o.Claimed(ctx, c.Event, c.Key, c.Mode)
			if err != nil {
				return 0, err
			}
			if begun {
				from = c.Event.ID + 1
			}
			after = c.Event.ID
		}
		left, more = left-len(s.Out), s.More
	}
	return from, nil
}

// Settle gives an inbox event its fate and moves the ack (T8).
func (e *Engine) Settle(ctx context.Context, agent string, f store.Fence, s store.Settlement) (int64, error) {
	step := journal.Settle(s)
	err := e.fenced(ctx, store.Inbox(agent), f, step)
	return step.Out, err
}

// MarkOutbox keeps a thread's delivery progress in the inbox.
func (e *Engine) MarkOutbox(ctx context.Context, agent string, m store.OutboxMark) error {
	return e.do(ctx, store.Inbox(agent), journal.Mark(m))
}

// ListTurns answers turns from the inbox alone.
func (e *Engine) ListTurns(ctx context.Context, agent string, q store.ListTurns) ([]store.Turn, error) {
	s := journal.Turns(q)
	err := e.view(ctx, store.Inbox(agent), s)
	return s.Out, err
}

// ResolveTurn takes a dead turn off the dead letters.
func (e *Engine) ResolveTurn(ctx context.Context, agent string, inboxID int64, how string) (thread.Event, string, error) {
	s := journal.Resolve(inboxID, how)
	err := e.do(ctx, store.Inbox(agent), s)
	return s.Out, s.Key, err
}
